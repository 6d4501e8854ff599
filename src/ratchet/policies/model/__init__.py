"""A language model as the policy: goal setter, builder and judge, against any `protocols.Model`."""

"""A checkpoint on this machine as a model: exact tokens, batches, and the process that it lives in."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from ratchet.errors import ContextOverflowError, ModelServerError, UsageError  # noqa: E402
from ratchet.policies.local.child import ChildSampler, open_local  # noqa: E402
from ratchet.policies.local.engine import Engine  # noqa: E402
from ratchet.policies.local.loading import load  # noqa: E402
from ratchet.policies.local.model import LocalModel  # noqa: E402
from ratchet.policies.local.templates import read_tokens  # noqa: E402
from ratchet.policies.local.weights import checkpoint_of, weights_hash  # noqa: E402
from ratchet.records import Exchange, Message  # noqa: E402
from ratchet.tasks.tokens import token_traces  # noqa: E402
from ratchet.train.vllm import VllmSampler  # noqa: E402
from tiny_model import tiny_checkpoint  # noqa: E402


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny"), head=5)


@pytest.fixture(scope="module")
def tokens(checkpoint):
    return read_tokens(checkpoint)


@pytest.fixture(scope="module")
def engine(checkpoint, tokens):
    return Engine(load(checkpoint), tokens)


def test_the_tokens_are_those_of_transformers(checkpoint, tokens):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(checkpoint)
    said = [
        Message("system", "be brief"),
        Message("user", "né {x}\n"),
        Message("assistant", "ok"),
        Message("user", "?"),
    ]
    dicts = [{"role": each.role, "content": each.content} for each in said]
    ours = tokens.encode(tokens.render(said))
    assert list(ours) == theirs.apply_chat_template(dicts, add_generation_prompt=True, return_dict=False)
    assert theirs.decode([tokens.end]) == "<|im_end|>"


def test_a_batch_gives_each_what_it_gets_alone(engine):
    prompts = [tuple(range(5, 5 + length)) for length in (3, 9, 30)]
    alone = [engine.sample(prompt, max_tokens=8, temperature=0) for prompt in prompts]
    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(lambda prompt: engine.sample(prompt, max_tokens=8, temperature=0), prompts))
    for one, other in zip(alone, together, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_what_is_asked_for_together_is_one_batch(checkpoint, tokens):
    model = load(checkpoint)
    widths = []
    model.register_forward_pre_hook(lambda _, __, given: widths.append(len(given["input_ids"])), with_kwargs=True)
    engine, ready = Engine(model, tokens), threading.Barrier(8)

    def ask(_):
        ready.wait()
        return engine.sample((5, 6, 7), max_tokens=2)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(8)))
    assert max(widths) > 4


def test_log_probabilities_are_of_what_was_sampled_from(engine):
    sampled = engine.sample((5, 6, 7), max_tokens=5, temperature=0.5)
    ids = torch.tensor([[5, 6, 7, *sampled.token_ids]])
    with torch.no_grad():
        logits = engine.model(input_ids=ids).logits[0, 2:-1] / 0.5
    expected = torch.log_softmax(logits, -1).gather(1, ids[0, 3:, None])[:, 0]
    assert sampled.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_reply_ends_at_a_stop_or_at_its_length(engine, tokens):
    whole = engine.sample((5, 6, 7), max_tokens=30, temperature=0)
    assert len(whole.token_ids) > 2
    cut = engine.sample((5, 6, 7), max_tokens=2, temperature=0)
    assert (cut.finish, cut.token_ids) == ("length", whole.token_ids[:2])
    word = tokens.decode(whole.token_ids[:2])
    stopped = engine.sample((5, 6, 7), max_tokens=30, temperature=0, stop=[word])
    assert (stopped.finish, stopped.token_ids) == ("stop", whole.token_ids[:2])


def test_a_model_that_fails_in_any_way_fails_everybody_who_asked(engine, tokens, monkeypatch):
    ready = threading.Barrier(3)

    def breaks(_batch):
        raise TypeError("it broke")

    monkeypatch.setattr(engine, "_decode", breaks)

    def ask(_):
        ready.wait()
        with pytest.raises(ModelServerError, match="it broke"):
            engine.sample((5, 6), max_tokens=3)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(ask, range(3)))


class Generation:
    """In the place of vLLM: it always says the same, past any stop."""

    def __init__(self, ids, logprobs):
        self.ids, self.logprobs = ids, logprobs

    def generate(self, prompts, images, num_generations):
        assert images is None
        assert num_generations == 1
        count = len(prompts)
        return prompts, [self.ids] * count, [[[each] for each in self.logprobs]] * count, None


def test_what_vllm_samples_ends_where_a_reply_ends(tokens):
    class Trainer:
        vllm_generation = Generation([*tokens.encode("ab"), tokens.end, 9, 9], [-1.0, -2.0, -3.0, None, -4.0])

    sampler = VllmSampler(Trainer, tokens)
    whole = sampler.sample((5, 6), max_tokens=5)
    assert (len(whole.token_ids), whole.logprobs, whole.finish) == (3, (-1.0, -2.0, -3.0), "stop")
    assert sampler.sample((5, 6), max_tokens=5, stop=["a"]).logprobs == (-1.0,)
    assert sampler.sample((5, 6), max_tokens=2).finish == "length"
    Trainer.vllm_generation.logprobs[1] = None
    assert VllmSampler(Trainer, tokens).sample((5, 6), max_tokens=5).logprobs == ()


def test_a_conversation_is_one_sequence_of_exact_tokens(engine, tokens):
    model = LocalModel(engine, tokens, "tiny", context_tokens=900, temperature=1.0, stop=())
    said, exchanges = [Message("system", "s"), Message("user", "u")], []
    for turn in range(3):
        reply = model.reply(said, stage="x", max_tokens=20)
        exchanges.append(Exchange("tiny", 0, tuple(said), reply, ""))
        said += [Message("assistant", reply.text.strip() or "(nothing)"), Message("user", f"result {turn}")]
    (trace,) = token_traces(exchanges)
    assert sum(trace.mask) == sum(len(exchange.reply.token_ids) for exchange in exchanges)
    assert all(math.isfinite(each) and each <= 0 for each in trace.logprobs)


def test_a_conversation_that_is_too_long_is_said_to_be(engine, tokens):
    model = LocalModel(engine, tokens, "tiny", context_tokens=20)
    with pytest.raises(ContextOverflowError, match="context of 20"):
        model.reply([Message("user", "x" * 40)], stage="x")


def test_the_child_answers_as_the_engine_does_and_ends_when_told(checkpoint, engine):
    with ChildSampler(checkpoint, threads=1) as child:
        there = child.sample((5, 6, 7), max_tokens=6, temperature=0)
        assert there.token_ids == engine.sample((5, 6, 7), max_tokens=6, temperature=0).token_ids
        process = child._process
    assert process.returncode is not None


def test_a_model_is_opened_by_the_name_of_its_folder(checkpoint, tmp_path):
    with open_local(str(checkpoint), tmp_path, threads=1, context_tokens=500) as model:
        assert model.reply([Message("user", "hello")], stage="x", max_tokens=5).completion_tokens <= 5


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is no model"):
        checkpoint_of(str(tmp_path / "nothing"), tmp_path)
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        read_tokens(tmp_path)


def test_the_hash_is_of_what_decides(checkpoint, tmp_path):
    other = tiny_checkpoint(tmp_path / "same", head=5)
    assert weights_hash(other) == weights_hash(checkpoint)
    (other / "README.md").write_text("a card")
    assert weights_hash(other) == weights_hash(checkpoint)
    assert weights_hash(tiny_checkpoint(tmp_path / "other", head=6)) != weights_hash(checkpoint)

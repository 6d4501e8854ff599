"""Which pytest plugin owns an option, a setting, a mark or a fixture.

Sources: the plugins' documentation, and the `pytest11` entry points of their releases.
"""

from __future__ import annotations

from collections.abc import Mapping


def _table(text: str) -> Mapping[str, str]:
    """Lines "distribution: name name …" to name → distribution. A name that ends in `*` stands for a prefix."""
    pairs = (line.partition(":") for line in text.strip().splitlines())
    return {name: distribution for distribution, _, found in pairs for name in found.split()}


OPTIONS = _table("""
pytest-cov: --cov* --no-cov --no-cov-on-fail
pytest-xdist: -n --numprocesses --dist --tx --maxprocesses --max-worker-restart --looponfail -f --rsyncdir
pytest-xdist: --testrunuid
pytest-benchmark: --benchmark-*
pytest-timeout: --timeout --timeout-method --timeout_method --session-timeout --timeout-disable-debugger-detection
pytest-asyncio: --asyncio-*
anyio: --anyio-backends
pytest-trio: --trio-mode
pytest-mypy: --mypy --mypy-*
pytest-mypy-plugins: --mypy-same-process --mypy-only-local-stub --mypy-testing-base
pytest-flake8: --flake8
pytest-flakes: --flakes
pytest-black: --black
pytest-isort: --isort
pytest-pylint: --pylint --pylint-*
pytest-ruff: --ruff --ruff-format
pytest-pycodestyle: --pycodestyle --codestyle
pytest-pep8: --pep8
pytest-pydocstyle: --pydocstyle --docstyle
pytest-mccabe: --mccabe
pytest-doctestplus: --doctest-plus --doctest-plus-* --doctest-rst --doctest-only --doctest-ufunc --text-file-format
pytest-remotedata: --remote-data
pytest-openfiles: --open-files
pytest-filter-subpackage: --package
pytest-arraydiff: --arraydiff --arraydiff-*
pytest-mpl: --mpl --mpl-*
pytest-rerunfailures: --reruns --reruns-* --only-rerun --rerun-except
pytest-randomly: --randomly-*
pytest-random-order: --random-order --random-order-*
pytest-order: --order-* --indulgent-ordering --sparse-ordering
pytest-django: --ds --dc --reuse-db --create-db --nomigrations --no-migrations --migrations --fail-on-template-vars
pytest-repeat: --count --repeat-scope
pytest-forked: --forked --boxed
pytest-html: --html --self-contained-html --css
pytest-json-report: --json-report --json-report-*
pytest-metadata: --metadata
allure-pytest: --alluredir --allure-*
nbval: --nbval --nbval-* --sanitize-with --current-env
nbmake: --nbmake --nbmake-*
syrupy: --snapshot-update --snapshot-details --snapshot-warn-unused
inline-snapshot: --inline-snapshot
pytest-recording: --record-mode --block-network --disable-recording --allowed-hosts
pytest-vcr: --vcr-record --vcr-record-mode --disable-vcr
hypothesis: --hypothesis-*
typeguard: --typeguard-packages
pytest-beartype: --beartype-packages
jaxtyping: --jaxtyping-packages
pytest-codspeed: --codspeed --codspeed-*
pytest-instafail: --instafail
pytest-testmon: --testmon --testmon-* --tmon
pytest-picked: --picked
pytest-split: --splits --group --store-durations --durations-path --splitting-algorithm --clean-durations
pytest-shard: --shard-id --num-shards
pytest-test-groups: --test-group --test-group-count
pytest-socket: --disable-socket --force-enable-socket --allow-hosts --allow-unix-socket
pytest-docker: --docker-compose --container-scope
pytest-regressions: --force-regen --regen-all
pytest-memray: --memray --most-allocations
pytest-spec: --spec
pytest-pspec: --pspec
pytest-tap: --tap --tap-*
pytest-bdd: --gherkin-* --cucumberjson --generate-missing --feature
pytest-qt: --qt-* --no-qt-log
pytest-selenium: --driver --driver-path
pytest-playwright: --browser --headed --tracing --video --screenshot --slowmo --browser-channel
pytest-base-url: --base-url --verify-base-url
pytest-aiohttp: --aiohttp-fast --aiohttp-loop --loop
pytest-parallel: --workers --tests-per-worker
pytest-check-links: --check-links --check-links-*
pytest-markdown-docs: --markdown-docs --markdown-docs-syntax
pytest-codeblocks: --codeblocks
pytest-examples: --update-examples
pytest-xvfb: --no-xvfb --xvfb-backend
pytest-postgresql: --postgresql-*
pytest-mysql: --mysql-*
pytest-redis: --redis-*
pytest-deadfixtures: --dead-fixtures --dup-fixtures
pytest-profiling: --profile --profile-svg --pstats-dir
pytest-leaks: --leaks
teamcity-messages: --teamcity --no-teamcity
pytest-custom-exit-code: --suppress-no-test-exit-code --suppress-tests-failed-exit-code
flaky: --max-runs --min-passes --no-flaky-report --force-flaky --no-success-flaky-report
pytest-env: --envfile
pytest-dotenv: --envfile-override
pytest-cases: --with-reorder
pytest-sugar: --old-summary --force-sugar
pytest-progress: --show-progress
pytest-clarity: --diff-type --diff-width --no-hints
pytest-github-actions-annotate-failures: --exclude-warning-annotations
pytest-retry: --retries --retry-delay --cumulative-timing
pytest-run-parallel: --parallel-threads --iterations
pytest-reportlog: --report-log
pytest-pyodide: --rt --runtime
pytest-notebook: --nb-*
pytest-subtests: --no-subtests-shortletter --no-subtests-reports
pytest-homeassistant-custom-component: --dburl
pytest-container: --container-runtime
pytest-localserver: --localserver
pytest-twisted: --reactor
""")

SETTINGS = _table("""
pytest-asyncio: asyncio_mode asyncio_default_fixture_loop_scope asyncio_default_test_loop_scope asyncio_debug
anyio: anyio_mode
pytest-trio: trio_mode trio_run
pytest-timeout: timeout timeout_method timeout_func_only session_timeout timeout_disable_debugger_detection
pytest-django: DJANGO_SETTINGS_MODULE DJANGO_CONFIGURATION django_find_project django_debug_mode
pytest-env: env env_files
pytest-mock: mock_use_standalone_module mock_traceback_monkeypatch
pytest-flake8: flake8-ignore flake8-max-line-length flake8-max-complexity flake8-show-source flake8-statistics
pytest-pep8: pep8ignore pep8maxlinelength
pytest-pycodestyle: codestyle_ignore codestyle_max_line_length
pytest-doctestplus: doctest_plus doctest_norecursedirs doctest_rst text_file_format doctest_subpackage_requires
pytest-remotedata: remote_data_strict
pytest-qt: qt_api qt_default_raising qt_no_exception_capture qt_log_level_fail qt_log_ignore
pytest-xdist: rsyncdirs rsyncignore looponfailroots looponfailroot
pytest-isort: isort_ignore
pytest-rerunfailures: reruns reruns_delay
pytest-bdd: bdd_features_base_dir bdd_strict_gherkin
pytest-base-url: base_url
pytest-beartype: beartype_packages
typeguard: typeguard-packages
jaxtyping: jaxtyping_packages
pytest-mpl: mpl-results-path mpl-baseline-path mpl-hash-library mpl-results-always mpl-use-full-test-name
pytest-html: render_collapsed max_asset_filename_length initial_sort
pytest-spec: spec_header_format spec_test_format
pytest-postgresql: postgresql_exec postgresql_host postgresql_port postgresql_dbname postgresql_password
pytest-freezer: freezegun_ignore_list
pytest-retry: retries retry_delay
pytest-reportlog: report_log
pytest-recording: block_network
pytest-httpx: httpx_mock
pytest-dotenv: env_override_existing_values
pytest-sugar: sugar_bar
pytest-order: order_scope
pytest-check: check_max_fail
pytest-randomly: randomly_seed
""")

MARKS = _table("""
pytest-asyncio: asyncio
anyio: anyio
pytest-trio: trio
pytest-twisted: inlineCallbacks
pytest-timeout: timeout
pytest-django: django_db urls ignore_template_errors
pytest-xdist: xdist_group
pytest-rerunfailures: flaky
pytest-benchmark: benchmark
pytest-recording: vcr default_cassette block_network
pytest-freezer: freeze_time
pytest-repeat: repeat
pytest-order: order
pytest-ordering: run
pytest-dependency: dependency
pytest-mpl: mpl_image_compare
pytest-remotedata: remote_data internet_off
pytest-forked: forked
pytest-httpx: httpx_mock
pytest-socket: enable_socket disable_socket allow_hosts
pytest-cov: no_cover
pytest-qt: qt_no_exception_capture qt_log_level_fail
pytest-datafiles: datafiles
pytest-cases: case
pytest-doctestplus: doctestplus
hypothesis: hypothesis
pytest-env: env
pytest-memray: limit_memory limit_leaks
respx: respx
pytest-subprocess: subprocess
pytest-playwright: browser_context_args only_browser skip_browser
pytest-check: check
pytest-codspeed: codspeed
pytest-docker-tools: docker
pytest-gevent: gevent
""")

FIXTURES = _table("""
pytest-mock: mocker class_mocker module_mocker package_mocker session_mocker
pytest-benchmark: benchmark benchmark_weave
pytest-httpserver: httpserver make_httpserver httpserver_listen_address httpserver_ssl_context
pytest-localserver: smtpserver httpsserver
requests-mock: requests_mock
pytest-httpx: httpx_mock
aioresponses: aioresponses
respx: respx_mock
pytest-responses: responses
syrupy: snapshot
pytest-snapshot: snapshot_dir
pytest-regressions: data_regression file_regression num_regression image_regression dataframe_regression
pytest-regressions: ndarrays_regression
pytest-datadir: datadir shared_datadir original_datadir lazy_datadir
pytest-datafiles: datafiles
pytest-freezer: freezer
Faker: faker _session_faker
pytest-django: db transactional_db django_db_setup django_db_blocker client admin_client rf admin_user live_server
pytest-django: settings
pytest-django: django_user_model django_assert_num_queries mailoutbox async_client django_db_reset_sequences
pytest-asyncio<1: event_loop
pytest-asyncio: unused_tcp_port unused_tcp_port_factory event_loop_policy
pytest-aiohttp: aiohttp_client aiohttp_server aiohttp_raw_server aiohttp_client_cls aiohttp_unused_port test_client
pytest-aiohttp: loop
pytest-sanic: sanic_client
pytest-tornado: http_client http_server io_loop http_port
pytest-flask: client_class live_server_scope
pytest-xdist: worker_id testrun_uid
pytest-cov: cov no_cover
anyio: anyio_backend anyio_backend_name anyio_backend_options
pytest-trio: nursery autojump_clock mock_clock
pytest-qt: qtbot qapp qtmodeltester qtlog
pytest-subprocess: fp fake_process
pytest-console-scripts: script_runner script_cwd
pytest-postgresql: postgresql postgresql_proc postgresql_noproc
pytest-redis: redisdb redis_proc
pytest-mongodb: mongodb
pytest-mysql: mysql mysql_proc
pytest-docker: docker_services docker_ip docker_compose_file docker_compose_project_name docker_cleanup
pytest-recording: vcr vcr_config vcr_cassette block_network
pytest-vcr: vcr_cassette_dir vcr_cassette_name
pytest-check: check
pytest-subtests: subtests
pytest-playwright: page browser browser_context context browser_name browser_type playwright
pytest-selenium: selenium
pytest-base-url: base_url
pytest-celery: celery_setup celery_worker_cluster
celery[pytest]: celery_app celery_worker celery_session_app celery_config celery_parameters
pytest-factoryboy: factoryboy_request
pytest-cases: current_cases
pytest-pyodide: selenium_standalone
pyfakefs: fs fs_class fs_module fs_session
time-machine: time_machine
pytest-metadata: metadata extra_metadata json_metadata
pytest-html: extra extras
pytest-mpl: mpl_image_compare
pytest-xvfb: xvfb
pytest-tmp-files: tmp_files
pytest-testinfra: host
pytest-socket: socket_disabled socket_enabled
pytest-bdd: _pytest_bdd_example
pytest-sftpserver: sftpserver
pytest-smtpd: smtpd
aiosmtpd: smtpd_server
pytest-mockito: when expect patch unstub
pytest-lazy-fixture: lazy_fixture
pytest-rng: random
pytest-services: run_services
pytest-raises: raises
pytest-ansible: ansible_module
pytest-jupyter: jp_fetch jp_ws_fetch jp_serverapp jp_configurable_serverapp jp_environ jp_server_config
pytest-jupyter[server]: jp_root_dir jp_http_port
pytest-alembic: alembic_runner alembic_engine alembic_config
pytest-unordered: unordered
pytest-structlog: log
pytest-virtualenv: virtualenv
pytest-pg: pg
pytest-container: auto_container container_per_test
dask[distributed]: c s
moto: aws_credentials
sybil: sybil
virtualenv: session_app_data
Sphinx: app make_app app_params shared_result sphinx_test_tempdir rootdir
webtest-plus: webtest
inline-snapshot: external
dirty-equals: dirty
pytest-mypy-testing: mypy
mktestdocs: mktestdocs
pytest-kind: kind_cluster
pytest-voluptuous: voluptuous
pytester: LineMatcher
""")

# Fixtures that projects define themselves so often that their absence says nothing about a plugin, unless the project
# asks for that plugin.
COMMON_FIXTURES = frozenset(
    [
        "client",
        "settings",
        "app",
        "loop",
        "log",
        "page",
        "browser",
        "context",
        "host",
        "fs",
        "base_url",
        "extra",
        "extras",
        "random",
        "check",
        "snapshot",
        "raises",
        "when",
        "expect",
        "patch",
        "unordered",
        "metadata",
        "rootdir",
        "c",
        "s",
        "cov",
        "pg",
        "env",
        "responses",
        "smtpd",
        "virtualenv",
        "mysql",
        "mongodb",
        "subtests",
        "kind_cluster",
        "external",
        "dirty",
        "webtest",
        "mypy",
        "test_client",
        "http_client",
        "db",
        "rf",
        "benchmark_weave",
    ]
)

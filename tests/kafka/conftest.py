"""A Kafka broker for the tests of a module, ended with them."""

import pytest

from .broker import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    started = Broker(tmp_path_factory.mktemp("broker"))
    try:
        started.start()
        yield started
    finally:
        started.stop()

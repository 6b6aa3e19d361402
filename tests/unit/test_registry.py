"""Choosing a protocol by one argument, and what happens when the argument is wrong."""

import pytest

from whence.errors import MisuseError, ParameterError, UnknownProtocolError
from whence.protocols import registry


def test_makes_every_protocol_that_it_names():
    for name in registry.names():
        core = registry.make(name, "a", ["a", "b"])
        assert (core.name, core.me, core.last) == (name, "a", 0)
        assert registry.lookup(name).packet_type is core.packet_type


def test_parameters_are_listed_with_their_defaults():
    assert registry.lookup("vector").parameters == {"relay": True}


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownProtocolError, match="Did you mean 'vector'"):
        registry.make("vektor", "a", ["a"])


@pytest.mark.parametrize("params", [{"rely": True}, {"relay": "yes"}])
def test_bad_parameters_are_named(params):
    with pytest.raises(ParameterError, match=r"rel"):
        registry.make("vector", "a", ["a"], params)


def test_a_node_must_be_a_member():
    with pytest.raises(ParameterError, match="'z'"):
        registry.make("fifo", "z", ["a", "b"])


@pytest.mark.parametrize("name", registry.names())
def test_our_own_misuse_raises(name):
    core = registry.make(name, "a", ["a", "b"])
    inputs = [core.broadcast, lambda payload, now_us: core.send("b", payload, now_us)]
    right, other = inputs[::-1] if registry.lookup(name).point_to_point else inputs
    with pytest.raises(MisuseError, match="not bytes"):
        right("text", 0)
    with pytest.raises(MisuseError, match="itself"):
        core.link_up("a", 0)
    with pytest.raises(MisuseError, match=name):  # the input of the other kind of protocol
        other(b"x", 0)
    assert core.last == 0

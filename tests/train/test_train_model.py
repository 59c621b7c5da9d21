"""A model as octets, and as a signed file: what is altered, too long, or not of a trusted signer is refused."""

import dataclasses
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import twinlink
from examples.train import model, signed_model
from examples.train.model import Answers, Model
from examples.train.signed_model import HEAD_OCTETS, ModelRefused
from tests.train.models import by_power, drawn
from twinlink.identity import Identity, trust


def test_a_model_is_the_same_after_its_octets() -> None:
    made = drawn(1)
    again = Model.decode(made.encode())
    features = np.random.default_rng(2).standard_normal((3, 106, len(made.features))).astype(np.float32)
    assert again.encode() == made.encode()
    assert (again.probabilities(features) == made.probabilities(features)).all()
    assert np.allclose(again.probabilities(features).sum(axis=-1), 1, atol=1e-5)


def test_an_answer_has_hysteresis() -> None:
    answers = Answers(dataclasses.replace(by_power(), on=0.8, off=0.3), 1)
    seen = [bool(answers.add(np.array([[p]], np.float32))[0, 0]) for p in (0.5, 0.9, 0.5, 0.31, 0.2, 0.7)]
    assert seen == [False, True, True, True, False, False]


@given(st.data())
def test_octets_that_were_changed_or_cut_are_a_model_or_refused_but_nothing_else(data: st.DataObject) -> None:
    octets = bytearray(drawn(1, (4,)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(octets)))
    try:
        found = Model.decode(bytes(octets[:cut] if data.draw(st.booleans()) else octets))
    except twinlink.MalformedPayload:
        return
    probabilities = found.probabilities(np.ones((2, len(found.features)), np.float32))
    assert np.isfinite(probabilities).all()


def with_head(**changes: object) -> bytes:
    octets = by_power().encode()
    end = 4 + struct.unpack_from(">I", octets)[0]
    text = json.dumps(json.loads(octets[4:end]) | changes).encode()
    return struct.pack(">I", len(text)) + text + octets[end:]


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"", "at most"),
        (bytes(model.MAX_OCTETS + 1), "at most"),
        (struct.pack(">I", 2**32 - 1) + b"{}", "its head is to end"),
        (pickle.dumps({"a": 1}), "its head"),
        (with_head(format="twinlink-prb-model/2"), "exactly"),
        (with_head(more=1), "exactly"),
        (with_head(widths=[5, 5, 5, 5, 5]), "widths"),
        (with_head(widths=[10**9]), "widths"),
        (with_head(widths=[True]), "widths"),
        (with_head(widths=[6]), "outputs"),
        (with_head(features=["power"]), "octets"),
        (with_head(interferers=5), "interferers"),
        (with_head(on=0.2, off=0.4), "thresholds"),
        (with_head(on=float("nan")), "thresholds"),
        (with_head(about="x" * 3000), "about"),
        (by_power().encode()[:-4] + struct.pack("<f", float("nan")), "finite"),
        (by_power().encode() + b"\0\0\0\0", "octets"),
    ],
)
def test_what_is_no_model_is_refused_and_named(octets: bytes, text: str) -> None:
    with pytest.raises(twinlink.MalformedPayload, match=text):
        Model.decode(octets)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    """`twin` trusts `trainer` as a twin, and `gnb` as a gnb; it has revoked `thief`, and has not met `stranger`."""
    folder = tmp_path_factory.mktemp("identities")
    made = {name: Identity.create(folder / name, name, "twin") for name in ("twin", "trainer", "thief", "stranger")}
    made["gnb"] = Identity.create(folder / "gnb", "gnb", "gnb")
    for name in ("trainer", "thief", "gnb"):
        trust.trust(made["twin"].folder, made[name].line, "gnb" if name == "gnb" else "twin")
    trust.revoke(made["twin"].folder, "thief")
    return made | {"twin": Identity.load(made["twin"].folder)}


@pytest.mark.parametrize("signer", ["trainer", "twin"])
def test_a_model_of_a_trusted_signer_counts(identities: dict[str, Identity], tmp_path: Path, signer: str) -> None:
    signed_model.write(tmp_path / "m.tlm", by_power().encode(), identities[signer])
    found = signed_model.read(tmp_path / "m.tlm", identities["twin"])
    assert (found.signer, found.body) == (signer, by_power().encode())


@pytest.mark.parametrize(("signer", "rule"), [("stranger", "key"), ("thief", "revoked"), ("gnb", "role")])
def test_a_model_of_another_signer_is_refused(
    identities: dict[str, Identity], tmp_path: Path, signer: str, rule: str
) -> None:
    signed_model.write(tmp_path / "m.tlm", by_power().encode(), identities[signer])
    with pytest.raises(ModelRefused) as caught:
        signed_model.read(tmp_path / "m.tlm", identities["twin"])
    assert caught.value.rule == rule


def test_each_octet_of_a_signed_file_counts(identities: dict[str, Identity], tmp_path: Path) -> None:
    path = tmp_path / "m.tlm"
    signed_model.write(path, by_power().encode(), identities["trainer"])
    octets = path.read_bytes()
    places = [*range(HEAD_OCTETS), *range(HEAD_OCTETS, len(octets), 97), len(octets) - 1]
    for place in places:
        path.write_bytes(octets[:place] + bytes((octets[place] ^ 1,)) + octets[place + 1 :])
        with pytest.raises(ModelRefused) as caught:
            signed_model.read(path, identities["twin"])
        assert caught.value.rule == ("unsigned" if place < 8 else "key" if place < 16 else "signature")


def test_what_is_signed_and_no_model_of_these_features_is_refused(
    identities: dict[str, Identity], tmp_path: Path
) -> None:
    names = ("other", *by_power().features[1:])
    for body in (pickle.dumps([1]), dataclasses.replace(by_power(), features=names).encode()):
        signed_model.write(tmp_path / "m.tlm", body, identities["trainer"])
        with pytest.raises(ModelRefused) as caught:
            signed_model.read(tmp_path / "m.tlm", identities["twin"])
        assert caught.value.rule == "format"


def test_a_file_that_is_too_long_or_absent_is_not_read(identities: dict[str, Identity], tmp_path: Path) -> None:
    path = tmp_path / "m.tlm"
    with path.open("wb") as file:
        file.truncate(2**40)  # no octet of it is on the disk
    with pytest.raises(ModelRefused) as caught:
        signed_model.read(path, identities["twin"])
    assert caught.value.rule == "length"
    with pytest.raises(FileNotFoundError):
        signed_model.read(Path(tmp_path / "none"), identities["twin"])


def test_the_greatest_weights_give_probabilities_too() -> None:
    """Signed, and poisoned: an answer that is no number would count as no interference."""
    least, most = drawn(1, (512, 512, 512)), np.float32(model.MAX_NUMBER)
    layers = tuple((np.where(weights < 0, -most, most), np.full_like(bias, most)) for weights, bias in least.layers)
    worst = dataclasses.replace(least, mean=-least.mean * 0 - most, scale=least.scale * 0 + most, layers=layers)
    assert worst.scale.max() == most
    with np.errstate(all="ignore"):
        found = worst.probabilities(np.ones((1, 2, len(worst.features)), np.float32))
    assert np.isfinite(found).all()


def test_more_classes_than_an_answer_has_room_for_are_none() -> None:
    with pytest.raises(twinlink.MalformedPayload, match="at most 127 classes"):
        Model.decode(with_head(classes=[f"c{k}" for k in range(200)]))

"""Contextual parts and the attention of pooled rows, against the model itself and against the formula."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.encoders.arms import places, plan_arms
from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.calibrated_model import CalibratedModel
from pipeline.encoders.calibration import Calibration, Pooling
from pipeline.encoders.contextual import ContextualEncoder
from pipeline.encoders.loading import load_model
from pipeline.errors import DataError
from tests.pipeline.encoders import reference, tiny_models

ARMS = [None, Calibration(basket_size=6), Calibration(basket_size=5, strength=1.0, layers="all")]
MODELS = [
    ("BERT", "cls"),
    ("BERT", "mean"),
    ("ModernBERT", "mean"),
    ("Qwen3", "lasttoken"),
    ("Qwen3", "mean"),
    ("Mistral, sliding", "lasttoken"),
    ("Gemma3 bidirectional", "lasttoken"),
    ("T5 encoder", "mean"),
    ("T5 encoder", "cls"),
]
LENGTHS = (31, 40, 22)


def wrapped(name: str, pooling: str) -> CalibratedModel:
    model = tiny_models.build(tiny_models.named(name))
    model.set_attn_implementation(ATTENTION_NAME)
    return CalibratedModel(model, Pooling(pooling))


def batch() -> tuple[Tensor, Tensor]:
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.randint(5, tiny_models.VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(3))
    return ids * mask, mask


def formula(arm: Calibration | None, pooling: str, n_layers: int) -> reference.Formula:
    if arm is None:
        return reference.Formula(pooling)
    geometry = arm.geometry(Pooling(pooling))
    return reference.Formula(
        pooling,
        arm.calibrated_layers(n_layers),
        arm.strength,
        arm.basket_size,
        geometry.isolate_first,
        geometry.isolate_last,
    )


@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_observing_embeds_as_ever_and_shows_the_rows_of_the_formula(name, pooling):
    model = wrapped(name, pooling)
    ids, mask = batch()
    seen = model.observe(ids, mask, ARMS)
    slow = reference.twin(model.model)
    for arm, pooled, rows, ordinary in zip(
        ARMS, seen.pooled, seen.rows, model.embed(ids, mask, ARMS), strict=True
    ):
        np.testing.assert_allclose(pooled, ordinary, atol=1e-5)
        running = reference._Running(formula(arm, pooling, model.n_layers), mask.bool())
        reference._running.append(running)
        with torch.no_grad():
            hidden = slow(input_ids=ids, attention_mask=mask).last_hidden_state
        reference._running.pop()
        real = mask.bool()
        np.testing.assert_allclose(rows[real], hidden[real], atol=2e-5)


@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_the_attention_of_all_arms_in_one_pass_is_that_of_separate_passes(name, pooling):
    model = wrapped(name, pooling)
    geometry = Calibration(basket_size=6).geometry(Pooling(pooling))
    arms = [*ARMS, Calibration(basket_size=6, strength=0.3, layers="last")]
    together = model.observe(*batch(), arms, attention=geometry).attention
    for number, arm in enumerate(arms):
        alone = model.observe(*batch(), [arm], attention=geometry).attention
        for name_ in ("first", "last", "baskets", "front_loading"):
            np.testing.assert_allclose(
                getattr(together, name_)[number], getattr(alone, name_)[0], atol=1e-5, err_msg=name_
            )


def eager_attentions(model: CalibratedModel, ids: Tensor) -> Tensor:
    """(layers, heads, rows, keys) of one text, from the model's own eager attention."""
    eager = copy.deepcopy(model.model)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        return torch.cat(eager(input_ids=ids[None], output_attentions=True).attentions)


@pytest.mark.parametrize(
    ("name", "pooling"), [("BERT", "cls"), ("BERT", "mean"), ("Qwen3", "lasttoken"), ("Qwen3", "mean")]
)
def test_the_profile_is_the_explicit_softmax_of_an_eager_model(name, pooling):
    """The second arm calibrates the last layer alone, so that its row there follows from the eager one."""
    model = wrapped(name, pooling)
    arm = Calibration(basket_size=6, strength=0.7, layers="last")
    geometry = arm.geometry(Pooling(pooling))
    seen = model.observe(*batch(), [None, arm], attention=geometry).attention
    for text, length in enumerate(LENGTHS):
        every_row = eager_attentions(model, batch()[0][text, :length])
        rows = {"cls": [0], "lasttoken": [length - 1], "mean": range(length)}[pooling]
        plain = every_row[:, :, list(rows)]
        calibrated = plain.clone()
        for place, row in enumerate(rows):
            allowed = list(range(row + 1)) if name == "Qwen3" else list(range(length))
            calibrated[-1, :, place] = reference.calibrated_row(
                plain[-1, :, place].double(), allowed, list(range(length)), formula(arm, pooling, 4)
            )
        for number, weights in enumerate((plain, calibrated)):
            groups = weights.mean(dim=2).unflatten(1, (2, -1)).mean(dim=2)
            for layer in range(4):
                for group in range(2):
                    expected = summed_by_hand(groups[layer, group].tolist(), geometry)
                    at = (number, text, layer, group)
                    got = [seen.first[at], seen.last[at], seen.front_loading[at]]
                    np.testing.assert_allclose(got, expected[:3], atol=1e-5)
                    baskets = seen.baskets[at]
                    np.testing.assert_allclose(baskets[baskets.isfinite()], expected[3], atol=1e-5)


def summed_by_hand(weights: list[float], geometry) -> tuple[float, float, float, list[float]]:
    content = weights[int(geometry.isolate_first) : len(weights) - int(geometry.isolate_last)]
    size = geometry.basket_size
    baskets = [sum(content[start : start + size]) for start in range(0, len(content), size)]
    inner = weights[1:-1]
    fine = [weight / 3 for weight in inner for _ in range(3)]  # thirds of tokens: thirds of texts are whole
    front = (sum(fine[: len(inner)]) - sum(fine[-len(inner) :])) / sum(inner)
    return weights[0], weights[-1], front, baskets


@pytest.mark.parametrize(("name", "pooling"), [("BERT", "cls"), ("BERT", "mean"), ("Qwen3", "lasttoken")])
def test_at_strength_1_every_basket_has_the_same_mass(name, pooling):
    model = wrapped(name, pooling)
    arm = Calibration(basket_size=6, strength=1.0)
    geometry = arm.geometry(Pooling(pooling))
    seen = model.observe(*batch(), [None, arm], attention=geometry).attention
    isolated = geometry.isolate_first + geometry.isolate_last
    for text, length in enumerate(LENGTHS):
        n = -(-(length - isolated) // 6) + isolated
        calibrated = seen.baskets[1, text, 2:]
        np.testing.assert_allclose(calibrated[calibrated.isfinite()], 1 / n, atol=1e-5)
        if geometry.isolate_first:
            np.testing.assert_allclose(seen.first[1, text, 2:], 1 / n, atol=1e-5)
        plain = seen.baskets[0, text, 2:].numpy()
        assert np.ptp(plain[np.isfinite(plain)]) > 0.01


def test_even_attention_is_not_front_loaded():
    from pipeline.encoders.attention_rows import _thirds

    for length in range(3, 12):
        thirds = _thirds(torch.ones(1, length, dtype=torch.bool))[:, 0]
        np.testing.assert_allclose(thirds.sum(dim=1), (length - 2) / 3, rtol=1e-5)
        np.testing.assert_allclose(thirds.sum(dim=0)[1:-1], 1.0, rtol=1e-5)
        assert thirds[:, [0, -1]].sum() == 0


def test_places_follow_each_arm_through_copies_and_blocks():
    arms = [None, Calibration(layers=[2, 3]), Calibration(layers=[3], strength=1.0)]
    cls = places(plan_arms(arms, n_layers=4, pooling=Pooling.CLS, causal=False))
    # Arm 1 is a copy where it first differs, then a block; arm 2 goes with the plain one till layer 3.
    assert cls == [((0, None),) * 3] * 2 + [
        ((0, None), (0, 0), (0, None)),
        ((0, None), (1, None), (2, None)),
    ]
    last = places(plan_arms(arms, n_layers=4, pooling=Pooling.LAST, causal=True))
    assert last == [((0, None),) * 3] * 2 + [((0, None), (0, 0), (0, 1))] * 2
    mean = places(plan_arms(arms, n_layers=4, pooling=Pooling.MEAN, causal=False))
    assert mean == [((0, None),) * 3] * 2 + [
        ((0, None), (1, None), (0, None)),
        ((0, None), (1, None), (2, None)),
    ]


class LargestTensor(TorchDispatchMode):
    """Notes the most elements of any tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            # An expanded view has no memory of its own.
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // 4)
        return made


@pytest.mark.parametrize(("pooling", "length"), [("cls", 8192), ("mean", 2048)])
def test_memory_grows_with_the_length_not_with_its_square(pooling, length, monkeypatch):
    from transformers import BertConfig, BertModel

    monkeypatch.setattr("pipeline.encoders.attention_rows._WEIGHTS_AT_ONCE", 2**16)
    config = BertConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=length,
    )
    model = tiny_models.randomise(BertModel(config))
    model.set_attn_implementation(ATTENTION_NAME)
    calibrated = CalibratedModel(model, Pooling(pooling))
    arm = Calibration(basket_size=128, strength=1.0)
    ids = torch.randint(5, 50, (1, length), generator=torch.Generator().manual_seed(0))
    with LargestTensor() as largest:
        arms = [None, arm] if pooling == "cls" else [arm]
        seen = calibrated.observe(
            ids, torch.ones_like(ids), arms, attention=arm.geometry(Pooling(pooling))
        ).attention
    assert largest.elements <= 128 * length < length * length / 10
    isolated = seen.first[-1] if pooling == "cls" else 0.0
    np.testing.assert_allclose(seen.baskets[-1].nansum() + isolated, 1.0, atol=1e-4)


WORDS = ["the cat sat", "late river", "alpha beta gamma dog"]
TEXT = "\n\n".join(WORDS)
PARTS = [(0, 11), (13, 23), (25, 45)]
# [CLS] the cat sat late river alpha beta gamma dog [SEP]
TOKENS = [(1, 4), (4, 6), (6, 10)]


@pytest.fixture
def folder(tmp_path):
    return tiny_models.bert_folder(tmp_path / "model", pooling="mean")


def contextual(folder, basket_size: int = 3, **options) -> ContextualEncoder:
    arms = {"plain": None, "calibrated": Calibration(basket_size=basket_size, strength=1.0)}
    return ContextualEncoder(load_model(folder, device="cpu", **options), arms)


def hidden_rows(folder, text: str) -> Tensor:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    with torch.no_grad():
        return model[0].auto_model(**model.tokenizer(text, return_tensors="pt")).last_hidden_state[0]


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


@pytest.mark.parametrize("prompt", ["", "hello world "])
def test_a_part_is_the_mean_of_its_own_contextual_tokens(folder, prompt):
    encoder = contextual(folder, document_prompt=prompt)
    seen = encoder.observe([TEXT, "a cat"], [PARTS, [(0, 1), (2, 5), (2, 5)]])["plain"]
    rows = hidden_rows(folder, prompt + TEXT)
    shift = 2 if prompt else 0
    for part, (start, end) in enumerate(TOKENS):
        np.testing.assert_allclose(
            seen.parts[0, part], unit(rows[start + shift : end + shift].mean(dim=0)), atol=1e-5
        )
    np.testing.assert_allclose(seen.vectors, encoder.encode_documents([TEXT, "a cat"])["plain"], atol=1e-6)


def test_batches_change_nothing_and_texts_keep_their_order(folder):
    encoder = contextual(folder)
    texts = [TEXT, "a cat", "hello world hello world hello", TEXT.upper()]
    parts = [[(0, len(text))] for text in texts]
    seen = encoder.observe(texts, parts, attention=True)
    encoder.tokens_per_batch = 8  # below one text: an arm a pass
    small = encoder.observe(texts, parts, attention=True)
    for arm in encoder.arms:
        np.testing.assert_allclose(seen[arm].vectors, small[arm].vectors, atol=1e-5)
        np.testing.assert_allclose(seen[arm].parts, small[arm].parts, atol=1e-5)
        np.testing.assert_allclose(seen[arm].attention.baskets, small[arm].attention.baskets, atol=1e-5)
        np.testing.assert_allclose(
            seen[arm].attention.front_loading, small[arm].attention.front_loading, atol=1e-5
        )


def test_observing_takes_turns_with_embedding(folder):
    """A pass's plan lies on the model while it runs: a second pass would change it."""
    encoder = contextual(folder)
    with ThreadPoolExecutor(1) as pool:
        with encoder._turn:
            seen = pool.submit(encoder.observe, [TEXT], [PARTS])
            with pytest.raises(TimeoutError):
                seen.result(0.3)
        assert seen.result(30)["plain"].vectors.shape[0] == 1


def test_a_part_without_a_token_is_refused(folder):
    with pytest.raises(DataError, match="characters 11 to 13 of a text has no token"):
        contextual(folder).observe([TEXT], [[(11, 13)]])


def test_texts_below_the_fewest_tokens_are_plain_in_every_arm(folder):
    encoder = contextual(folder, basket_size=5)
    texts = ["a cat", "a cat sat", "a cat sat on the mat hello world"]
    counts = [encoder.count_tokens(text) for text in texts]
    assert counts == [4, 5, 10]
    assert encoder.fewest_tokens == 5
    seen = encoder.observe(texts, [[(0, 1)]] * 3)
    same = [
        np.array_equal(*pair) for pair in zip(seen["plain"].vectors, seen["calibrated"].vectors, strict=True)
    ]
    assert same[0]
    assert not same[2]

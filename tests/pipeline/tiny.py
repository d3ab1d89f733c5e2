"""Small tokenizers whose every token can be foreseen."""

from __future__ import annotations

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

_SENTENCE = "the a cat dog sat on mat answer is river blue late early alpha beta gamma e cafe hello world"
WORDS = _SENTENCE.split()
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?-"


def wordpiece() -> Tokenizer:
    """BERT's kind: a few words, else single characters; two special tokens."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokens += [c for c in _CHARACTERS if c not in WORDS] + ["##" + c for c in _CHARACTERS]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=tokens[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def bytelevel() -> Tokenizer:
    """GPT's kind: one character can be several tokens; no special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["hello world " * 50, " world peace" * 50], trainer)
    return tokenizer

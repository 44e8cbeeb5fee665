package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

const (
	spaceToMark   = `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`
	spaceDecoders = `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
)

// loadSentencePiece reads tokenizer.model.
func (f *folder) loadSentencePiece() (*Tokenizer, error) {
	switch name := f.className(); name {
	case "LlamaTokenizer", "GemmaTokenizer", generic:
	default:
		return nil, &unknownError{fmt.Sprintf("tokenizers of model type %q and class %q are not supported", f.model, name)}
	}
	data, err := f.read("tokenizer.model")
	if err != nil {
		return nil, err
	}
	if isTikToken(data) { // Meta's own files of Llama 3
		return f.loadTikToken("tokenizer.model")
	}
	sp, err := parseSentencePiece(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	var more []AddedToken
	extra, err := f.extra()
	if err != nil {
		return nil, err
	}
	for _, p := range sp.pieces {
		userDefined := p.kind == pieceUserDefined && f.className() != generic // whose pieces are found later
		if len(extra) == 0 && (p.kind == pieceControl || userDefined) {
			more = append(more, AddedToken{Content: p.text, Special: p.kind == pieceControl})
		}
	}
	if f.className() == generic && sp.dummyPrefix {
		for i := range f.listed {
			f.listed[i].Normalized = false // they are found in the text as it is, without the prefix
		}
	}
	var m model
	c := f.sentencePieceParts(sp)
	if sp.unigram && f.className() == generic {
		m, err = sp.newUnigram()
	} else {
		m, err = f.sentencePieceBPE(sp, c)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	return f.build(m, c, more)
}

// sentencePieceParts returns the parts around a vocabulary of SentencePiece.
func (f *folder) sentencePieceParts(sp *spModel) parts {
	switch f.className() {
	case "LlamaTokenizer":
		scheme, strip := "first", `,{"type":"Strip","content":" ","start":1,"stop":0}`
		switch {
		case !f.flag("add_prefix_space", true):
			scheme, strip = "never", ""
		case f.flag("legacy", false):
			scheme = "always"
		}
		return parts{pre: `{"type":"Metaspace","replacement":"▁","prepend_scheme":"` + scheme + `","split":false}`,
			decoder:  `{"type":"Sequence","decoders":[` + spaceDecoders + strip + `]}`,
			defaults: map[string]string{"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}}
	case "GemmaTokenizer":
		return parts{normalizer: spaceToMark, pre: `{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`,
			decoder:  `{"type":"Sequence","decoders":[` + spaceDecoders + `]}`,
			defaults: map[string]string{"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "mask_token": "<mask>"}}
	case generic:
		return f.genericParts(sp)
	}
	return parts{}
}

// newUnigram makes the model of a Unigram vocabulary.
func (m *spModel) newUnigram() (model, error) {
	u := &unigram{unk: m.ids[2], byteFallback: m.byteFallback, vocab: newVocab(len(m.pieces), 0, -1)}
	if u.unk < 0 || int(u.unk) >= len(m.pieces) {
		return nil, fmt.Errorf("the unknown token's id is %d, want one below %d", u.unk, len(m.pieces))
	}
	for i, p := range m.pieces {
		if math.IsNaN(float64(p.score)) {
			return nil, fmt.Errorf("piece %d: the score is not a number", i)
		}
		u.push([]byte(p.text))
		u.scores = append(u.scores, float64(p.score))
	}
	u.finish()
	return u, nil
}

// sentencePieceBPE makes the model of a BPE vocabulary. Its classes for Llama and Gemma take the pieces of
// Unigram vocabularies for BPE, too.
func (f *folder) sentencePieceBPE(sp *spModel, c parts) (model, error) {
	b := &bpe{unk: -1, cache: newWordCache(), fuseUnk: true, byteFallback: true}
	b.vocab = newVocab(len(sp.pieces), 0, -1)
	for _, p := range sp.pieces {
		b.push([]byte(p.text))
	}
	unk := ""
	switch f.className() {
	case "LlamaTokenizer": // characters without a token are bytes, or vanish
	case "GemmaTokenizer":
		a, _, err := f.token("unk_token", c.defaults["unk_token"])
		if err != nil {
			return nil, err
		}
		unk = a.Content
	case generic:
		return f.genericBPE(sp, b)
	}
	if unk != "" {
		b.unk = b.id(unk) // one that is not in the vocabulary makes unknown characters vanish
	}
	list, err := b.pieceMerges(func(int32) bool { return true })
	if err != nil {
		return nil, err
	}
	b.setMerges(list)
	return b, nil
}

var errMergeWork = errors.New("the tokens are too long to find their merges")

// pieceMerges lists the pairs of tokens that make a token, in the order of the ids of what they make and
// of the lengths of their left parts. Tokens that are not mergeable are no parts and are not made.
func (b *bpe) pieceMerges(mergeable func(id int32) bool) ([]merge, error) {
	list := make([]merge, 0, b.count())
	work := mergeWork
	for id := range b.top + 1 {
		token := b.name(id)
		if b.id(token) != id || !mergeable(id) {
			continue // or another id has the name
		}
		_, first := utf8.DecodeRuneInString(token)
		for at := first; at < len(token); {
			if work -= len(token); work < 0 {
				return nil, errMergeWork
			}
			if left := b.id(token[:at]); left >= 0 && mergeable(left) {
				if right := b.id(token[at:]); right >= 0 && mergeable(right) {
					list = append(list, merge{left, right, id})
				}
			}
			_, n := utf8.DecodeRuneInString(token[at:])
			at += n
		}
	}
	return list, nil
}

// mergeWork is the number of bytes that may be looked up for the merges of a vocabulary, fifty times
// those of the largest published ones.
const mergeWork = 1 << 30

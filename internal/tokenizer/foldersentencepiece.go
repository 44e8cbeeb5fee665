package tokenizer

import (
	"encoding/base64"
	"encoding/json"
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
		if len(extra) == 0 && (p.kind == pieceControl || p.kind == pieceUserDefined) {
			more = append(more, AddedToken{Content: p.text, Special: p.kind == pieceControl})
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
		c := parts{normalizer: spaceToMark, decoder: `{"type":"Sequence","decoders":[` + spaceDecoders + `]}`, defaults: map[string]string{}}
		if !sp.byteFallback {
			c.decoder = `{"type":"Replace","pattern":{"String":"▁"},"content":" "}`
		}
		if len(sp.charsmap) > 0 {
			encoded, _ := json.Marshal(base64.StdEncoding.EncodeToString(sp.charsmap))
			c.normalizer = `{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":` + string(encoded) + `},` + spaceToMark + `]}`
		}
		for i, role := range roles[:len(sp.ends)] {
			if sp.ids[i] >= 0 {
				c.defaults[role] = sp.ends[i]
			}
		}
		return c
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
	list, err := b.pieceMerges()
	if err != nil {
		return nil, err
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
		unk, b.byteFallback = sp.ends[2], sp.byteFallback
		b.rename(f.listed)
	}
	if unk != "" {
		b.unk = b.id(unk) // one that is not in the vocabulary makes unknown characters vanish
	}
	b.setMerges(list)
	return b, nil
}

// rename gives tokens of the vocabulary the names that the settings have for their ids, such as those of
// control tokens that were reserved.
func (v *vocab) rename(listed []AddedToken) {
	for _, a := range listed {
		old := v.name(a.ID)
		if _, known := v.names.get(a.Content); known || old == "" || old == a.Content {
			continue
		}
		v.names.remove(old)
		v.set([]byte(a.Content), a.ID)
	}
}

var errMergeWork = errors.New("the tokens are too long to find their merges")

// pieceMerges lists the pairs of tokens that make a token, in the order of the ids of what they make and
// of the lengths of their left parts.
func (b *bpe) pieceMerges() ([]merge, error) {
	list := make([]merge, 0, b.count())
	work := mergeWork
	for id := range b.top + 1 {
		token := b.name(id)
		if b.id(token) != id {
			continue // another id has the name
		}
		_, first := utf8.DecodeRuneInString(token)
		for at := first; at < len(token); {
			if work -= len(token); work < 0 {
				return nil, errMergeWork
			}
			if left := b.id(token[:at]); left >= 0 {
				if right := b.id(token[at:]); right >= 0 {
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

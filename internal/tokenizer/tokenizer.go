package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"unicode/utf8"
)

// Tokenizer converts text to ids and back. It does not change after [Parse] and is safe for
// concurrent use.
type Tokenizer struct {
	model model
	added *addedVocab
	norm  normalizer // nil: none
	pre   []preTokenizer
	post  postProcessor // nil: none
	dec   decoder       // nil: tokens joined with spaces

	frames     [2]frame // without special tokens and with them
	spread     spread
	patterns   int          // parts that match patterns, at least 1
	trackFirst bool         // words need alignment to know whether they begin the text
	fastOnce   sync.Once    // fills fastDec when the first ids are decoded
	fastDec    *fastDecoder // nil: ask dec
	size       int
}

// FileName is the file that [Load] reads first.
const FileName = "tokenizer.json"

// Load reads tokenizer.json in dir, a regular file. Without that file it reads a vocabulary in
// another format, as transformers does, by the model's type and the tokenizer's class: vocab.json with
// merges.txt, tokenizer.model, tiktoken.model or tekken.json. A folder without a vocabulary is an error for which errors.Is(err, fs.ErrNotExist)
// holds: the model can still be used with token ids. So is one whose vocabulary is not supported:
// the error names the file and says how to convert it.
func Load(dir string) (*Tokenizer, error) { return LoadFS(os.DirFS(dir), dir) }

// LoadFS is [Load] for a file system. Errors call it name.
func LoadFS(fsys fs.FS, name string) (*Tokenizer, error) {
	if fsys == nil {
		return nil, fmt.Errorf("tokenizer: %s: got a nil file system", name)
	}
	t, err := loadFile(fsys)
	var malformed *parseError
	switch {
	case errors.As(err, &malformed):
		return nil, fmt.Errorf("tokenizer: %w (in %s)", malformed.error, filepath.Join(name, FileName))
	case errors.Is(err, fs.ErrNotExist):
		return loadOther(fsys, name)
	case err != nil:
		return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	return t, nil
}

// Parse builds a tokenizer from the contents of a tokenizer.json, which it does not keep. Errors
// name the member and, for malformed JSON, the byte.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := parse(&source{data: tokenizerJSON, early: true})
	if err != nil {
		t, err = parse(&source{data: tokenizerJSON})
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func parse(src *source) (*Tokenizer, error) {
	data := src.data
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("byte %d: want UTF-8", validPrefix(data))
	}
	p := new(parser)
	parts := map[string]rawPart{}
	var spec modelSpec
	var early *earlyBPE
	s := newScanner(data, 0)
	err := s.Object("", func(key []byte) error {
		if string(key) == "model" { // which is nearly the whole file, so it is not stepped over first
			var err error
			if early != nil {
				return errLate
			}
			spec, early, err = src.readSpec(s)
			return err
		}
		name := string(key)
		raw, err := s.Balanced()
		parts[name] = rawPart(raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !s.AtEnd() {
		return nil, s.fail("want the end of the file after the object")
	}
	if spec == nil {
		return nil, fmt.Errorf("model: missing")
	}
	if p.model, err = p.parseModel(spec, early); err != nil {
		return nil, err
	}
	return p.assemble(parts)
}

// validPrefix returns the length of the longest prefix of data that is UTF-8.
func validPrefix(data []byte) int {
	at := 0
	for at < len(data) {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		at += n
	}
	return at
}

// assemble builds the pipeline around the model.
func (p *parser) assemble(parts map[string]rawPart) (*Tokenizer, error) {
	t := &Tokenizer{model: p.model}
	var err error
	if t.norm, err = p.normalizer(parts["normalizer"], "normalizer", 0); err != nil {
		return nil, err
	}
	if t.pre, err = p.preTokenizers(parts["pre_tokenizer"], "pre_tokenizer", 0); err != nil {
		return nil, err
	}
	if t.post, err = p.postProcessor(parts["post_processor"], "post_processor", 0); err != nil {
		return nil, err
	}
	if t.dec, err = p.decoder(parts["decoder"], "decoder", 0); err != nil {
		return nil, err
	}
	list, err := addedTokens(parts["added_tokens"])
	if err != nil {
		return nil, err
	}
	if t.added, err = newAddedVocab(list, p.model, t.norm); err != nil {
		return nil, err
	}
	t.finish(p)
	return t, nil
}

// finish sets what follows from the parts.
func (t *Tokenizer) finish(p *parser) {
	t.patterns = max(p.patterns, 1)
	t.size = t.model.size()
	for _, a := range t.added.tokens {
		t.size = max(t.size, int(a.ID)+1)
	}
	t.wire()
}

// wire sets what depends on several parts at once.
func (t *Tokenizer) wire() {
	for i, pre := range t.pre {
		switch pre := pre.(type) {
		case *byteLevel:
			if b, ok := t.model.(*bpe); ok && i == len(t.pre)-1 {
				pre.raw = b.useRawBytes()
			}
		case *metaspace:
			t.trackFirst = t.trackFirst || pre.prepend == prependFirst && t.norm != nil
		}
	}
	t.frames = [2]frame{t.newFrame(false), t.newFrame(true)}
	t.spread = t.newSpread()
}

// fast returns the decoder for most files, or nil.
func (t *Tokenizer) fast() *fastDecoder {
	t.fastOnce.Do(func() { t.fastDec = newFastDecoder(t) })
	return t.fastDec
}

// addedTokens decodes the list of added tokens.
func addedTokens(raw rawPart) ([]AddedToken, error) {
	var list []struct {
		ID                                  rawPart
		Content                             any
		SingleWord                          bool `json:"single_word"`
		LStrip, RStrip, Normalized, Special bool
	}
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, decodeError("added_tokens", err)
	}
	out := make([]AddedToken, len(list))
	for i, t := range list {
		content, ok := t.Content.(string)
		if !ok {
			return nil, fmt.Errorf("added_tokens[%d].content: want a string", i)
		}
		if id := bytes.TrimSpace(t.ID); len(id) > 0 {
			if _, err := strconv.ParseUint(string(id), 10, 32); err != nil {
				return nil, fmt.Errorf("added_tokens[%d].id: got %.40s, want a whole number up to %d", i, id, uint32(math.MaxUint32))
			}
		}
		out[i] = AddedToken{Content: content, SingleWord: t.SingleWord, LStrip: t.LStrip, RStrip: t.RStrip,
			Normalized: t.Normalized, Special: t.Special}
	}
	return out, nil
}

// VocabSize returns one more than the largest id, added tokens included. A model's embedding may
// have more rows.
func (t *Tokenizer) VocabSize() int { return t.size }

// Token returns the name of an id in the vocabulary: for byte-level vocabularies
// its spelling in byte-level characters, see [Tokenizer.TokenBytes].
func (t *Tokenizer) Token(id int32) (string, bool) {
	if k, ok := t.added.byID[id]; ok {
		return t.added.names[k], true
	}
	return t.model.token(id)
}

// names yields the names of all tokens by id, added tokens included, in no order.
func (t *Tokenizer) names() iter.Seq2[int32, string] {
	return func(yield func(int32, string) bool) {
		for id := range t.model.all() {
			if _, added := t.added.byID[id]; added {
				continue
			}
			if name, ok := t.model.token(id); ok && !yield(id, name) {
				return
			}
		}
		for k := range t.added.tokens {
			if !yield(t.added.tokens[k].ID, t.added.names[k]) {
				return
			}
		}
	}
}

// ID returns the id of a token by its name in the vocabulary.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if k, ok := t.added.byContent[token]; ok {
		return t.added.tokens[k].ID, true
	}
	id := t.model.id(token)
	return id, id >= 0
}

// AddedTokens lists the added tokens in the order of the file. The caller must not
// change it.
func (t *Tokenizer) AddedTokens() []AddedToken { return t.added.tokens }

// IsSpecial reports whether id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	k, ok := t.added.byID[id]
	return ok && t.added.tokens[k].Special
}

// TokenBytes returns the bytes that id stands for inside a text; they may be a part
// of a character. An added token stands for its content. ok is false for an id
// that is not in the vocabulary and where the token's bytes depend on its
// neighbours (WordPiece).
func (t *Tokenizer) TokenBytes(id int32) (b []byte, ok bool) {
	if k, ok := t.added.byID[id]; ok {
		return []byte(t.added.tokens[k].Content), true
	}
	token, ok := t.model.token(id)
	if !ok {
		return nil, false
	}
	if t.dec == nil {
		return []byte(token), true
	}
	return t.dec.tokenBytes(token, newDecodeBudget(len(token)))
}

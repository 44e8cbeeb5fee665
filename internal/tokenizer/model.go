package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
)

// model turns one word into tokens. A model is one file: a type with these methods
// and a line in [parser.parseModel]. Models are safe for concurrent use.
type model interface {
	// appendIDs appends the ids of word. b may end the work on a long one.
	appendIDs(dst []int32, word string, b *bounds) ([]int32, error)
	// appendTokens appends the tokens of word with their places.
	appendTokens(dst []token, word string) ([]token, error)
	// least is a number of tokens that word has at least, or 0 if it takes as long to tell
	// as to cut it.
	least(word string) int
	// longest returns the maximum number of bytes of a word that a token stands for. 0 means any
	// number.
	longest() int
	// covers returns the maximum number of bytes of a token that may stand for the letter or digit c
	// anywhere. 0 means any number.
	covers(c rune) int
	// id returns the id of a token, or -1.
	id(token string) int32
	token(id int32) (string, bool)
	// all yields every id that may have a token.
	all() iter.Seq2[int32, string]
	// size is one more than the largest id, count the number of tokens.
	size() int
	count() int
}

// token is one token of a word: its place in bytes of the word, and its text if that is not the
// id's name.
type token struct {
	id         int32
	start, end int
	text       string
}

// modelSpec holds the members of the model object, undecoded.
type modelSpec map[string]rawMember

// rawMember is a value and its place in the file.
type rawMember struct {
	raw []byte
	at  int
}

// scan returns a scanner for the member, nil if it is missing or null.
func (spec modelSpec) scan(name string) *scanner {
	m, ok := spec[name]
	if !ok || string(m.raw) == "null" {
		return nil
	}
	return newScanner(m.raw, m.at)
}

// str decodes a member that is a string; missing and null are "".
func (spec modelSpec) str(name string) (string, error) {
	s := spec.scan(name)
	if s == nil {
		return "", nil
	}
	b, err := s.String()
	if err != nil {
		return "", fmt.Errorf("model.%s: %w", name, err)
	}
	return string(b), nil
}

// flag decodes a member that is true or false; missing and null are false.
func (spec modelSpec) flag(name string) (bool, error) {
	s := spec.scan(name)
	if s == nil {
		return false, nil
	}
	switch string(s.Text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("model.%s: %w", name, s.fail("neither true nor false"))
}

// readSpec reads the members of the model object at s, undecoded but for what is read early.
func (src *source) readSpec(s *scanner) (spec modelSpec, early *earlyBPE, err error) {
	spec = modelSpec{}
	err = s.Object("", func(key []byte) error {
		name := string(key)
		if early != nil && (name == "type" || name == "vocab" || name == "merges") {
			return errLate
		}
		if name == "merges" {
			var ok bool
			if early, ok, err = src.readEarly(spec, s); ok || err != nil {
				return err
			}
		}
		s.Peek()
		at := s.Base + s.Pos
		raw, err := s.Balanced()
		spec[name] = rawMember{raw, at}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	return spec, early, nil
}

// parseModel builds the model from the members of its object.
func (p *parser) parseModel(spec modelSpec, early *earlyBPE) (model, error) {
	kind, err := spec.str("type")
	if err != nil {
		return nil, err
	}
	if kind == "" {
		kind = spec.guess()
	}
	switch kind {
	case "BPE":
		return parseBPE(spec, early)
	case "Unigram":
		return parseUnigram(spec)
	case "WordPiece":
		return parseWordPiece(spec)
	case "WordLevel":
		return parseWordLevel(spec)
	}
	return nil, unsupported("model", "type", kind, "BPE Unigram WordPiece WordLevel")
}

// guess names the type of a model whose file does not, by its members.
func (spec modelSpec) guess() string {
	has := func(name string) bool { _, ok := spec[name]; return ok }
	switch {
	case has("merges"):
		return "BPE"
	case has("max_input_chars_per_word"):
		return "WordPiece"
	case has("unk_id") || has("vocab") && bytes.HasPrefix(spec["vocab"].raw, []byte("[")):
		return "Unigram"
	}
	return "WordLevel"
}

var errNoVocab = errors.New("model.vocab: missing")

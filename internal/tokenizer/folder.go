package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/heftai/heft/internal/smallfile"
)

// parts are how transformers builds the tokenizers of a class around a vocabulary.
type parts struct {
	normalizer, pre, decoder string            // JSON as in tokenizer.json; "" for none
	defaults                 map[string]string // special tokens by role, where the files do not state them
	first                    []AddedToken      // added tokens before all others
	words                    *trie             // pieces of their own behind pre, nil for none
}

// folder is a model's folder without tokenizer.json.
type folder struct {
	fsys fs.FS
	*settings
}

// A vocabFormat is a format of a vocabulary.
type vocabFormat struct {
	files []string // that it consists of
	load  func(*folder) (*Tokenizer, error)
}

// vocabFormats are the formats besides tokenizer.json that Heft reads, in the order in which they are
// tried.
var vocabFormats = []vocabFormat{
	{[]string{"vocab.json", "merges.txt"}, (*folder).loadMerges},
	{[]string{"tekken.json"}, (*folder).loadTekken},
	{[]string{"tokenizer.model"}, (*folder).loadSentencePiece},
	{[]string{"tiktoken.model"}, func(f *folder) (*Tokenizer, error) { return f.loadTikToken("tiktoken.model") }},
	{[]string{"qwen.tiktoken"}, func(f *folder) (*Tokenizer, error) { return f.loadTikToken("qwen.tiktoken") }},
}

// loadOther reads a tokenizer from the other files in which a folder may have a vocabulary. Where
// several formats are there, the first that the tokenizer's class takes counts.
func loadOther(fsys fs.FS, name string) (*Tokenizer, error) {
	var f *folder
	reason := ""
	for _, format := range vocabFormats {
		if slices.ContainsFunc(format.files, func(file string) bool { _, err := fs.Stat(fsys, file); return err != nil }) {
			continue
		}
		if f == nil {
			s, err := readSettings(fsys)
			if err != nil {
				return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
			}
			f = &folder{fsys, s}
		}
		t, err := format.load(f)
		var unknown *unknownError
		if err == nil {
			return t, nil
		}
		if !errors.As(err, &unknown) {
			return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
		}
		reason = unknown.reason
	}
	return nil, missing(fsys, name, reason)
}

// read returns a vocabulary's file.
func (f *folder) read(file string) ([]byte, error) {
	return smallfile.ReadFS(f.fsys, file, smallfile.Tokenizer)
}

// build puts the parts of c around a model. more are added tokens of the vocabulary's own file.
func (f *folder) build(m model, c parts, more []AddedToken) (*Tokenizer, error) {
	list, ends, err := f.addedTokens(c, more)
	if err != nil {
		return nil, err
	}
	p := &parser{model: m}
	t := &Tokenizer{model: m}
	if t.norm, err = p.normalizer(rawPart(c.normalizer), "normalizer", 0); err != nil {
		return nil, err
	}
	if t.pre, err = p.preTokenizers(rawPart(c.pre), "pre_tokenizer", 0); err != nil {
		return nil, err
	}
	if c.words != nil {
		t.pre = append(t.pre, splitter{pattern: c.words, how: isolated})
	}
	if t.dec, err = p.decoder(rawPart(c.decoder), "decoder", 0); err != nil {
		return nil, err
	}
	if t.added, err = newAddedVocab(list, m, t.norm); err != nil {
		return nil, err
	}
	if t.post, err = p.postProcessor(f.template(t, ends), "post_processor", 0); err != nil {
		return nil, err
	}
	t.finish(p)
	return t, nil
}

// addedTokens lists the added tokens in the order in which they get ids: those of the lists, those with
// a role, those with another name, and those of the vocabulary's file and without a name. ends are the
// tokens that begin and end a text, "" for none.
func (f *folder) addedTokens(c parts, more []AddedToken) (list []AddedToken, ends [2]string, err error) {
	var special []addedSpec
	for i, role := range roles {
		a, _, err := f.token(role, c.defaults[role])
		if err != nil {
			return nil, ends, err
		}
		if !a.set {
			continue
		}
		if i < len(ends) {
			ends[i] = a.Content
		}
		special = append(special, a)
	}
	named, err := f.named()
	if err != nil {
		return nil, ends, err
	}
	special = append(special, named...)
	seen := map[string]bool{}
	add := func(a AddedToken) { // of two tokens with the same content the first counts
		if !seen[a.Content] {
			seen[a.Content] = true
			list = append(list, a)
		}
	}
	for _, a := range c.first {
		add(a)
	}
	for _, a := range f.listed {
		a.Special = a.Special || slices.ContainsFunc(special, func(s addedSpec) bool { return s.Content == a.Content })
		add(a)
	}
	for _, a := range special {
		a.Special = true
		add(a.AddedToken)
	}
	extra, err := f.extra()
	if err != nil {
		return nil, ends, err
	}
	for _, a := range more {
		add(a)
	}
	for _, a := range extra {
		add(a.AddedToken)
	}
	return list, ends, nil
}

// template makes the post-processor that adds the tokens at the ends of a text where the settings ask
// for them.
func (f *folder) template(t *Tokenizer, ends [2]string) rawPart {
	type piece = map[string]any
	sequence := func(name string, typeID int) piece {
		return piece{"Sequence": piece{"id": name, "type_id": typeID}}
	}
	special := piece{}
	around := func(p piece, typeID int) []piece {
		pieces := []piece{p}
		for i, name := range []string{"add_bos_token", "add_eos_token"} {
			id, ok := t.ID(ends[i])
			if ends[i] == "" || !ok || !f.flag(name, false) {
				continue
			}
			special[ends[i]] = piece{"id": ends[i], "ids": []int32{id}, "tokens": []string{ends[i]}}
			end := piece{"SpecialToken": piece{"id": ends[i], "type_id": typeID}}
			if i == 0 {
				pieces = append([]piece{end}, pieces...)
			} else {
				pieces = append(pieces, end)
			}
		}
		return pieces
	}
	single, second := around(sequence("A", 0), 0), around(sequence("B", 1), 1)
	raw, _ := json.Marshal(piece{"type": "TemplateProcessing", "single": single, "pair": append(append([]piece{}, single...), second...), "special_tokens": special})
	return raw
}

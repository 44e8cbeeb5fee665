package tokenizer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// build makes a tokenizer of single ASCII characters with the given other members.
func build(t testing.TB, members string) *Tokenizer {
	t.Helper()
	tok, err := Parse([]byte(file(members)))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// file is a tokenizer.json with the given other members.
func file(members string) string {
	if members != "" {
		members += ","
	}
	return `{` + members + `"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"c":3," ":4,"ab":5,"A":6},"merges":["a b"]}}`
}

func TestLoadMissing(t *testing.T) {
	if _, err := Load(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(file("")), 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tok.EncodeIDs("cabz", EncodeOptions{}); err != nil || !slices.Equal(got, []int32{3, 5, 0}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                    "byte 0: the file ends where",
		`[]`:                                  "byte 0: found '['",
		`{"model":{}} x`:                      "byte 13: want the end of the file",
		`{"a":"` + "\xff" + `"}`:              "byte 6: want UTF-8",
		`{}`:                                  "model: missing",
		`{"model":null}`:                      "model: byte 9: found 'n'",
		`{"model":{"type":"Markov"}}`:         `model: the type "Markov" is not supported (supported: BPE Unigram WordPiece WordLevel)`,
		`{"model":{"type":"BPE"}}`:            "model.vocab: missing",
		`{"model":{"type":"BPE","vocab":{"a"`: "byte 35: the file ends inside",
		`{"model":{"type":"BPE","vocab":{"a":}}}`:                                                                   "model.vocab: byte 36: a token id",
		`{"model":{"type":"BPE","vocab":{"a":-1}}}`:                                                                 "model.vocab: byte 36: a token id",
		`{"model":{"type":"BPE","vocab":{"a":99999999999999}}}`:                                                     "model.vocab: byte 36: a token id",
		`{"model":{"type":"BPE","vocab":{"a\u12":1}}}`:                                                              "model.vocab: byte 34: a broken escape",
		`{"model":{"type":"BPE","vocab":{"a\ud800":1}}}`:                                                            "model.vocab: byte 40: half a surrogate pair",
		`{"model":{"type":"BPE","vocab":{"a":0},"unk_token":"u"}}`:                                                  `model.unk_token: "u" is not in the vocabulary`,
		`{"model":{"type":"BPE","vocab":{"a":0},"fuse_unk":1}}`:                                                     "model.fuse_unk: byte 50: neither true nor false",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`:                                                 `model.merges: [0]: byte 54: "a" or "b" is not in the vocabulary`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","a"]]}}`:                                             `model.merges: [0]: byte 58: "aa" is not in the vocabulary`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`:                                                 "model.merges: [0]: byte 54: a merge has 1 parts",
		`{"model":{"type":"Unigram","vocab":[["a"]]}}`:                                                              "model.vocab: byte 41: not a pair",
		`{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}}`:                                                 "model.unk_id: got 1, want an id below",
		file(`"normalizer":{"type":"Upper"}`):                                                                       `normalizer: the normalizer "Upper" is not supported`,
		file(`"normalizer":{"type":"Sequence","normalizers":[{"type":7}]}`):                                         "normalizer.normalizers[0].Type: got a number, want a string",
		file(`"normalizer":{"type":"Replace","pattern":{"Regex":"(a"}}`):                                            `normalizer.pattern.Regex: pattern "(a", byte 2: unterminated group`,
		file(`"normalizer":{"type":"Replace","pattern":{}}`):                                                        "normalizer.pattern: want String or Regex",
		file(`"pre_tokenizer":{"type":"Split","pattern":{"String":"a"}}`):                                           `pre_tokenizer.behavior: got "", want one of`,
		file(`"pre_tokenizer":{"type":"Metaspace","replacement":"ab"}`):                                             `pre_tokenizer.replacement: got "ab", want one character`,
		file(`"post_processor":{"type":"TemplateProcessing","single":[{}]}`):                                        "post_processor.single[0]: want Sequence or SpecialToken",
		file(`"decoder":{"type":"CTC2"}`):                                                                           `decoder: the decoder "CTC2" is not supported`,
		file(`"added_tokens":{}`):                                                                                   "added_tokens: json: cannot unmarshal object",
		file(`"added_tokens":[{"content":null}]`):                                                                   "added_tokens[0].content: want a string",
		file(`"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 40) + strings.Repeat(`]}`, 40)): ": nested more than 16 deep",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.90s\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestIDsOfAddedTokens: the file's ids are not looked at.
func TestIDsOfAddedTokens(t *testing.T) {
	tok := build(t, `"added_tokens":[{"content":"<x>","id":90},{"content":"ab","id":3,"special":true},{"content":"<y>"},{"content":""},{"content":"<x>"}]`)
	for token, want := range map[string]int32{"<x>": 7, "ab": 5, "<y>": 8} {
		if id, ok := tok.ID(token); !ok || id != want {
			t.Errorf("%s has id %d, want %d", token, id, want)
		}
	}
	if tok.VocabSize() != 9 || len(tok.AddedTokens()) != 3 || !tok.IsSpecial(5) || tok.IsSpecial(7) {
		t.Errorf("size %d, added %v", tok.VocabSize(), tok.AddedTokens())
	}
}

// TestInvalidUTF8: invalid bytes count as U+FFFD, as the reference's callers do.
func TestInvalidUTF8(t *testing.T) {
	tok := build(t, "")
	e, err := tok.Encode("a\xffb", EncodeOptions{})
	if err != nil || !slices.Equal(e.IDs, []int32{1, 0, 2}) || e.Offsets[2] != [2]int{2, 3} {
		t.Errorf("%+v, %v", e, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file("")), "abc")
	for _, path := range golden.Glob(f, "text/tokenizers/tiny-*/tokenizer.json") {
		if data, err := golden.Read(path); err == nil && len(data) < 1<<14 {
			f.Add(data, "Hello <s> w\u00f6rld\n  12")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		e, err := tok.Encode(text, EncodeOptions{AddSpecialTokens: true})
		if err != nil {
			return
		}
		if len(e.Tokens) != len(e.IDs) || len(e.Offsets) != len(e.IDs) || len(e.TypeIDs) != len(e.IDs) {
			t.Errorf("lengths differ: %+v", e)
		}
		ids, err := tok.EncodeIDs(text, EncodeOptions{AddSpecialTokens: true})
		if err != nil || !slices.Equal(ids, e.IDs) {
			t.Errorf("EncodeIDs %v, Encode %v (%v)", ids, e.IDs, err)
		}
		s := tok.NewStream(true)
		for _, id := range ids {
			_, _, _ = s.Next(id)
		}
		s.Flush()
		tok.Decode(ids, false)
	})
}

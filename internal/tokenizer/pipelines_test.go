package tokenizer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// pipelineFile is one random tokenizer.json of scripts/tokenizer_pipelines.py.
type pipelineFile struct {
	JSON      json.RawMessage
	VocabSize int `json:"vocab_size"`
	Cases     []pipelineCase
}

type pipelineCase struct {
	Text, Text2                 string
	Plain, Special, Pair, Split wantEncoding
	DecodeIDs                   []int32 `json:"decode_ids"`
	Decode                      *string
	DecodeSkip                  *string `json:"decode_skip"`
	Stream                      []*string
	StreamError                 *string `json:"stream_error"`
}

// wantEncoding is an encoding, or the reference's error.
type wantEncoding struct {
	IDs     []int32
	Tokens  []string
	Offsets [][2]int
	TypeIDs []int32 `json:"type_ids"`
	Error   *string
}

// TestPipelines compares every kind of part, alone and combined, with the reference.
func TestPipelines(t *testing.T) {
	var files []pipelineFile
	if !golden.JSON(t, filepath.Join("testdata", "pipelines.json"), &files) {
		t.Fatal("testdata/pipelines.json.gz: missing")
	}
	for i, f := range files {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tok, err := Parse(f.JSON)
			if err != nil {
				t.Fatal(err)
			}
			if tok.VocabSize() != f.VocabSize {
				t.Errorf("vocabulary of %d, want %d", tok.VocabSize(), f.VocabSize)
			}
			for _, c := range f.Cases {
				c.check(t, tok)
			}
			if t.Failed() {
				t.Logf("%.1500s", f.describe())
			}
		})
	}
}

// describe is the file without its vocabulary.
func (f *pipelineFile) describe() string {
	var parts map[string]any
	_ = json.Unmarshal(f.JSON, &parts)
	model, _ := parts["model"].(map[string]any)
	delete(model, "vocab")
	delete(model, "merges")
	b, _ := json.Marshal(parts)
	return string(b)
}

func (c *pipelineCase) check(t *testing.T, tok *Tokenizer) {
	special := EncodeOptions{AddSpecialTokens: true}
	c.Plain.check(t, c.Text, func() (Encoding, error) { return tok.Encode(c.Text, EncodeOptions{}) })
	c.Special.check(t, c.Text, func() (Encoding, error) { return tok.Encode(c.Text, special) })
	c.Split.check(t, c.Text, func() (Encoding, error) { return tok.Encode(c.Text, EncodeOptions{SplitSpecial: true}) })
	c.Pair.check(t, c.Text+" + "+c.Text2, func() (Encoding, error) { return tok.EncodePair(c.Text, c.Text2, special) })
	if c.Special.Error == nil {
		if got, err := tok.EncodeIDs(c.Text, special); err != nil || !slices.Equal(got, c.Special.IDs) {
			t.Errorf("%q: EncodeIDs %v (%v), want %v", c.Text, got, err, c.Special.IDs)
		}
	}
	checkDecode(t, tok, c.DecodeIDs, false, c.Decode)
	checkDecode(t, tok, c.DecodeIDs, true, c.DecodeSkip)
	s, got := tok.NewStream(true), []*string{}
	for _, id := range c.DecodeIDs {
		text, ok, err := s.Next(id)
		if err != nil {
			if c.StreamError == nil {
				t.Errorf("stream %v: %v", c.DecodeIDs, err)
			}
			return
		}
		if got = append(got, nil); ok {
			got[len(got)-1] = &text
		}
	}
	if c.Decode != nil && (c.StreamError != nil || !reflect.DeepEqual(got, c.Stream)) {
		t.Errorf("stream %v: %q, want %q (error %v)", c.DecodeIDs, deref(got), deref(c.Stream), c.StreamError)
	}
}

// check runs encode; where the reference failed it must only not panic.
func (w *wantEncoding) check(t *testing.T, text string, encode func() (Encoding, error)) {
	t.Helper()
	got, err := encode()
	if w.Error != nil {
		return
	}
	if err != nil || !slices.Equal(got.IDs, w.IDs) || !slices.Equal(got.Tokens, w.Tokens) ||
		!slices.Equal(got.Offsets, w.Offsets) || !slices.Equal(got.TypeIDs, w.TypeIDs) {
		t.Errorf("%q: %v\n got %v %q %v %v\nwant %v %q %v %v", text, err,
			got.IDs, got.Tokens, got.Offsets, got.TypeIDs, w.IDs, w.Tokens, w.Offsets, w.TypeIDs)
	}
}

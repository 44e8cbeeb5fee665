package folder

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/tokenizer"
)

// TestSpacedTokenizer: a tokenizer of Gemma's form (scripts/make-gguf-spaced.py), as the metadata of a GGUF file, gives texts
// the ids of the tokenizers library, and ids their texts.
func TestSpacedTokenizer(t *testing.T) {
	var fixture struct {
		Tokens, Merges []string
		Types          []int64
		BOS, EOS       uint64
		Cases          []struct {
			Text, Decoded string
			IDs           []int32
		}
	}
	text, err := golden.Read("testdata/spaced.json")
	if err == nil {
		err = json.Unmarshal(text, &fixture)
	}
	if err != nil || len(fixture.Cases) == 0 {
		t.Fatal(len(fixture.Cases), err)
	}
	for _, kind := range []struct{ model, pre string }{{"gemma4", ""}, {"gpt2", "gemma4"}} {
		m := gguf.Metadata{ggml + "model": kind.model, ggml + "tokens": fixture.Tokens, ggml + "token_type": fixture.Types, ggml + "merges": fixture.Merges,
			ggml + "bos_token_id": fixture.BOS, ggml + "eos_token_id": fixture.EOS, ggml + "add_space_prefix": false}
		if kind.pre != "" {
			m[ggml+"pre"] = kind.pre
		}
		tok := tokenizerOf(t, m)
		for _, c := range fixture.Cases {
			ids, err := tok.EncodeIDs(c.Text, tokenizer.EncodeOptions{AddSpecialTokens: true})
			if err != nil || !slices.Equal(ids, c.IDs) {
				t.Errorf("%v: %q: got %v, %v, want %v", kind, c.Text, ids, err, c.IDs)
			}
			if got := tok.Decode(c.IDs[1:], true); got != c.Decoded && len(c.IDs) > 1 {
				t.Errorf("%v: %v: got %q, want %q", kind, c.IDs, got, c.Decoded)
			}
		}
	}
}

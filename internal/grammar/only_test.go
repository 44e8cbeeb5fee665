package grammar_test

import (
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/internal/tokenizer"
)

// encoding is a tokenizer that says how it encodes texts.
type encoding struct{ decoding }

func (e encoding) EncodeText(text string) []int32 {
	ids, _ := e.EncodeIDs(text, tokenizer.EncodeOptions{SplitSpecial: true})
	return ids
}

// TestACertainTextHasTheTokensOfTheTokenizer: where one text alone may follow, one token is allowed, the
// tokenizer's; what comes out matches the grammar, and the other masks stay as they are.
func TestACertainTextHasTheTokensOfTheTokenizer(t *testing.T) {
	const schema = `{"type":"object","properties":{"description of the model":{"type":"integer"},"the number of tokens":{"enum":["sometimes they are many","nothing"]}},
		"required":["description of the model","the number of tokens"],"additionalProperties":false}`
	for _, file := range golden.Glob(t, "text/tokenizers/tiny-*/tokenizer.json") {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			tok := goldenTokenizer(t, filepath.Dir(file))
			v := vocab.New(encoding{decoding{tok}}, tok.VocabSize())
			if v == nil {
				return
			}
			g, err := jsonschema.Compile(grammar.NewLibrary(v), []byte(schema))
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range 4 {
				m, loose := g.NewMatcher(nil), g.NewMatcher(nil)
				loose.AnyTokens()
				var text []byte
				certain := 0
				for !m.Complete() && len(text) < 4000 {
					mask, all := vocab.Bits(m.Mask()), vocab.Bits(loose.Mask())
					n, wide := mask.Count(), all.Count()
					switch {
					case n == 0:
						t.Fatalf("no token may follow %q", text)
					case n == 1 && wide > 1:
						certain++
					case n != wide:
						t.Fatalf("%d tokens may follow %q, want 1 or %d", n, text, wide)
					}
					id := nth(mask, rng.IntN(n))
					if !all.Has(id) {
						t.Fatalf("token %d may not follow %q", id, text)
					}
					if m.Accept(id) != nil || loose.Accept(id) != nil {
						t.Fatalf("token %d is not accepted after %q", id, text)
					}
					text = append(text, v.Name(id)...)
				}
				if len(text) < 4000 && (!g.Match(string(text)) && !v.DropsSpace || certain == 0) {
					t.Errorf("%d certain tokens in %q", certain, text)
				}
			}
		})
	}
}

// nth is id n of a set.
func nth(set vocab.Bits, n int) int32 {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			if n == 0 {
				return int32(i<<6 + bits.TrailingZeros64(w))
			}
			n--
		}
	}
	return -1
}

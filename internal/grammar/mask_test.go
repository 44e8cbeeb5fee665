package grammar_test

import (
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/gbnf"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/internal/layout"
	"github.com/heftai/heft/internal/tokenizer"
)

// sources are grammars with the parts of which masks are made: counts, exceptions, ambiguity, stacks.
var sources = []string{
	`{"type":"object","properties":{"name":{"type":"string","minLength":2,"maxLength":9},"n":{"type":"number"},"i":{"type":"integer","minimum":-5,"maximum":120}},"required":["name"]}`,
	`{"type":"array","items":{"anyOf":[{"type":"string","maxLength":3},{"type":"string","pattern":"^the"},{"$ref":"#"}]},"minItems":1,"maxItems":3}`,
	`{"type":"object","additionalProperties":{"type":["boolean","null","string"]},"properties":{"the":{"const":"x\"y"},"th":{},"a\nb":{"enum":["red","re","é"]}}}`,
	`{"type":"string","format":"date-time"}`,
	`{"type":"object","patternProperties":{"^x_":{"type":"string"}},"additionalProperties":false}`,
	`{}`,
}

// newLibrary is the vocabulary of a tokenizer of the golden files.
func newLibrary(t *testing.T, folder string) *grammar.Library {
	t.Helper()
	tok := goldenTokenizer(t, folder)
	v := vocab.New(decoding{tok}, tok.VocabSize())
	if v == nil {
		return nil
	}
	return grammar.NewLibrary(v)
}

// goldenTokenizer reads a tokenizer of the golden files.
func goldenTokenizer(t *testing.T, folder string) *tokenizer.Tokenizer {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} { // which may be packed
		if b, err := golden.Read(filepath.Join(folder, name)); err == nil {
			files[name] = &fstest.MapFile{Data: b}
		}
	}
	tok, err := tokenizer.LoadFS(files, filepath.Base(folder))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tagged is a grammar of strings that are written as they are, some with limits of their length.
func tagged(t *testing.T, lib *grammar.Library) *grammar.Grammar {
	t.Helper()
	b := grammar.NewBuilder(lib)
	l := &jsonschema.Layout{Object: layout.Object{Kind: layout.Tags, First: "<a ", Next: "<a ", Equals: ">", EqualsText: ">", End: "</a>", Stop: "</a>"}}
	l.Marker = func(text string, next grammar.Pos) grammar.Pos { return b.Literal(text, next) }
	const schema = `{"type":"object","properties":{"k":{"type":["string","null"],"minLength":1,"maxLength":5},"n":{"type":"string"},"l":{"type":"array","items":{"type":"string","maxLength":2}}},"required":["k"],"additionalProperties":{"type":"string","minLength":2}}`
	at, err := jsonschema.AppendLaidOut(b, []byte(schema), l, grammar.Return)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Grammar(at)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// decoding has the interface of a public tokenizer.
type decoding struct{ *tokenizer.Tokenizer }

// TestMasksHoldExactlyTheTokensThatCanBeRead: for every tokenizer, along random texts, a token is in
// the mask if and only if reading it succeeds.
func TestMasksHoldExactlyTheTokensThatCanBeRead(t *testing.T) {
	folders := golden.Glob(t, "text/tokenizers/tiny-*/tokenizer.json")
	for _, file := range folders {
		lib := newLibrary(t, filepath.Dir(file))
		if lib == nil {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			for k, source := range sources {
				g, err := jsonschema.Compile(lib, []byte(source))
				if err != nil {
					t.Fatal(err)
				}
				checkMasks(t, lib, g, rand.New(rand.NewPCG(1, uint64(k))))
			}
			b := grammar.NewBuilder(lib)
			at, err := gbnf.Append(b, "root ::= e\ne ::= t (\"+\" t)*\nt ::= [a-z]+ | [0-9]{1,3} | \"(\" e \")\"", grammar.Return)
			if err != nil {
				t.Fatal(err)
			}
			g, err := b.Grammar(at)
			if err != nil {
				t.Fatal(err)
			}
			checkMasks(t, lib, g, rand.New(rand.NewPCG(2, 3)))
			checkMasks(t, lib, tagged(t, lib), rand.New(rand.NewPCG(4, 5)))
		})
	}
}

func checkMasks(t *testing.T, lib *grammar.Library, g *grammar.Grammar, r *rand.Rand) {
	t.Helper()
	words := lib.Vocab().Words
	const end = int32(0)
	for range 4 {
		m, path := g.NewMatcher([]int32{end}), []int32(nil)
		for range 12 {
			mask := vocab.Bits(append([]uint64(nil), m.Mask()...))
			var allowed []int32
			for id := range int32(words * 64) {
				probe := g.NewMatcher([]int32{end})
				for _, before := range path {
					if err := probe.Accept(before); err != nil {
						t.Fatal(err)
					}
				}
				ok := probe.Accept(id) == nil
				if ok != mask.Has(id) {
					t.Fatalf("after %v: id %d %q: mask %v, read %v", path, id, lib.Vocab().Name(id), mask.Has(id), ok)
				}
				if ok && id != end {
					allowed = append(allowed, id)
				}
			}
			if len(allowed) == 0 {
				break
			}
			id := allowed[r.IntN(len(allowed))]
			path = append(path, id)
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestASpaceThatTheDecoderDropsIsNotText: SentencePiece's decoders drop the space of a text's first
// token, but not where a text goes on.
func TestASpaceThatTheDecoderDropsIsNotText(t *testing.T) {
	lib := newLibrary(t, golden.Path(t, "text", "tokenizers", "tiny-spm-legacy"))
	v := lib.Vocab()
	if !v.DropsSpace {
		t.Fatal("the decoder keeps the space")
	}
	b := grammar.NewBuilder(lib)
	g, err := b.Grammar(b.Literal("the", grammar.Return))
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(m *grammar.Matcher) (plain, spaced bool) {
		mask := vocab.Bits(m.Mask())
		for id := range int32(v.Words * 64) {
			switch name := v.Name(id); {
			case !mask.Has(id) || len(name) == 0:
			case name[0] == ' ':
				spaced = true
			default:
				plain = true
			}
		}
		return plain, spaced
	}
	if plain, spaced := allowed(g.NewMatcher(nil)); !plain || !spaced {
		t.Errorf("at the beginning: plain %v, with a space %v, want both", plain, spaced)
	}
	m := g.NewMatcher(nil)
	m.Continues()
	if plain, spaced := allowed(m); !plain || spaced {
		t.Errorf("going on: plain %v, with a space %v, want plain alone", plain, spaced)
	}
}

// TestTokensOfAKnownGrammarAllocateNothing: once its states and masks are known, a grammar allocates nothing per
// token.
func TestTokensOfAKnownGrammarAllocateNothing(t *testing.T) {
	lib := newLibrary(t, golden.Path(t, "text", "tokenizers", "tiny-llama3like"))
	g, err := jsonschema.Compile(lib, []byte(sources[0]))
	if err != nil {
		t.Fatal(err)
	}
	var path []int32
	m := g.NewMatcher(nil)
	for range 40 {
		if id := first(m.Mask()); id >= 0 && m.Accept(id) == nil {
			path = append(path, id)
		}
	}
	n := testing.AllocsPerRun(10, func() {
		m := g.NewMatcher(nil)
		for _, id := range path {
			m.Mask()
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(path) < 20 || n > 4 { // those of the matcher
		t.Errorf("%v allocations for %d tokens", n, len(path))
	}
}

// first is the first id of a mask, -1 if there is none.
func first(mask []uint64) int32 {
	for i, w := range mask {
		if w != 0 {
			return int32(i*64 + bits.TrailingZeros64(w))
		}
	}
	return -1
}

// TestGrammarsAreSharedBetweenGoroutines: matchers of one grammar, and grammars of one library.
func TestGrammarsAreSharedBetweenGoroutines(t *testing.T) {
	lib := newLibrary(t, golden.Path(t, "text", "tokenizers", "tiny-llama3like"))
	shared, err := jsonschema.Compile(lib, []byte(sources[1]))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			own, err := jsonschema.Compile(lib, []byte(sources[k]))
			if err != nil {
				t.Error(err)
				return
			}
			for _, g := range []*grammar.Grammar{shared, own} {
				m := g.NewMatcher(nil)
				for range 30 {
					if id := first(m.Mask()); id < 0 || m.Accept(id) != nil {
						break
					}
				}
				g.Bytes()
			}
		})
	}
	all.Wait()
}

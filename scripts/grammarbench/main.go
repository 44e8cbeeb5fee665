// Grammarbench measures constrained decoding on a corpus of schemas, in one thread.
//
//	go run ./scripts/grammarbench TOKENIZER_FOLDER CORPUS.jsonl
//
// scripts/grammar_corpus.py makes the corpus, scripts/grammar_llguidance.py measures llguidance on it.
// It exits with 1 if an invalid document is accepted or a valid one is rejected.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/text"
)

// encoder is a tokenizer that says how it encodes texts.
type encoder struct{ *text.Tokenizer }

func (e encoder) EncodeText(s string) []int32 {
	ids, err := e.Encode(s, text.EncodeOptions{SplitSpecialTokens: true})
	if err != nil {
		log.Fatal(err)
	}
	return ids
}

// A schema of the corpus.
type schema struct {
	Name           string
	Schema         json.RawMessage
	Valid, Invalid []string
}

// result is what was measured.
type result struct {
	compiled, refused                  int
	valid, rejected, invalid, accepted int
	certain, others                    int // tokens of valid documents that alone were allowed; documents that have other tokens there
	first, masks                       []time.Duration
	bytes, largest                     int
}

const eos = int32(0)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: grammarbench TOKENIZER_FOLDER CORPUS.jsonl")
	}
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread() // cpuTime is that of the thread
	tokenizer, err := text.ReadTokenizer(os.Args[1], os.DirFS(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	begin := time.Now()
	v := vocab.New(encoder{tokenizer}, tokenizer.VocabSize())
	lib := grammar.NewLibrary(v)
	fmt.Printf("vocabulary: %d nodes, %d KiB, %v\n", v.Trie.Len(), v.Trie.Size()>>10, time.Since(begin).Round(time.Millisecond))
	if _, err := jsonschema.Compile(lib, []byte(`{"type":"array","items":{"type":["string","integer"],"maxLength":3}}`)); err != nil {
		log.Fatal(err)
	}
	jsonschema.Prepare(lib) // as a server does with its first constrained request
	file, err := os.Open(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	var r result
	var schemas []json.RawMessage
	for lines.Scan() {
		var s schema
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			log.Fatal(err)
		}
		r.measure(lib, tokenizer, &s)
		schemas = append(schemas, s.Schema)
	}
	if lines.Err() != nil {
		log.Fatal(lines.Err())
	}
	r.print()
	show("first mask, fastest of 5", fastest(v, schemas, 5))
	fmt.Printf("library: %d KiB\n", lib.Bytes()>>10)
	if r.rejected+r.accepted > 0 {
		os.Exit(1)
	}
}

// measure compiles a schema and reads its documents.
func (r *result) measure(lib *grammar.Library, t *text.Tokenizer, s *schema) {
	begin := cpuTime()
	g, err := jsonschema.Compile(lib, s.Schema)
	if err != nil {
		r.refused++
		log.Printf("%s: %v", s.Name, err)
		return
	}
	g.NewMatcher([]int32{eos}).Mask()
	r.first = append(r.first, cpuTime()-begin)
	r.compiled++
	for _, doc := range s.Valid {
		r.valid++
		if !r.read(g, t, doc) {
			r.rejected++
			log.Printf("%s rejects %s", s.Name, doc)
		}
	}
	for _, doc := range s.Invalid {
		r.invalid++
		if g.Match(doc) {
			r.accepted++
			log.Printf("%s accepts %s", s.Name, doc)
		}
	}
	r.bytes += g.Bytes()
	r.largest = max(r.largest, g.Bytes())
}

// fastest returns the least time that the first mask of each schema took in some rounds, each with a library of its own and
// nothing between the schemas: without the garbage collector's work and the caches that other work has filled.
func fastest(v *vocab.Vocab, schemas []json.RawMessage, rounds int) []time.Duration {
	least := make([]time.Duration, len(schemas))
	for round := range rounds {
		lib := grammar.NewLibrary(v)
		jsonschema.Prepare(lib)
		for i, s := range schemas {
			begin := cpuTime()
			g, err := jsonschema.Compile(lib, s)
			if err != nil {
				continue // counted and named by measure
			}
			g.NewMatcher([]int32{eos}).Mask()
			if d := cpuTime() - begin; round == 0 || d < least[i] {
				least[i] = d
			}
		}
	}
	return least
}

// read reads a document token by token, with a mask before each.
func (r *result) read(g *grammar.Grammar, t *text.Tokenizer, doc string) bool {
	ids, err := t.Encode(doc, text.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	m := g.NewMatcher([]int32{eos})
	for _, id := range ids {
		begin := cpuTime()
		mask := m.Mask()
		r.masks = append(r.masks, cpuTime()-begin)
		if only, ok := vocab.Bits(mask).Only(); ok {
			r.certain++
			if only != id {
				r.others++
				m.AnyTokens()
				mask = m.Mask()
			}
		}
		if !vocab.Bits(mask).Has(id) || m.Accept(id) != nil {
			return false
		}
	}
	return m.Complete()
}

func (r *result) print() {
	fmt.Printf("heft: schemas compiled %d, refused %d; %d KiB a grammar, at most %d\n", r.compiled, r.refused, r.bytes/max(r.compiled, 1)>>10, r.largest>>10)
	fmt.Printf("valid %d, rejected %d; invalid %d, accepted %d\n", r.valid, r.rejected, r.invalid, r.accepted)
	fmt.Printf("certain tokens %d, where documents have other tokens %d\n", r.certain, r.others)
	show("first mask", r.first)
	show("mask", r.masks)
}

func show(name string, list []time.Duration) {
	if len(list) == 0 {
		return
	}
	slices.Sort(list)
	sum := time.Duration(0)
	for _, d := range list {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	within, _ := slices.BinarySearch(list, 2*time.Millisecond)
	fmt.Printf("%s us: count %d, mean %.1f, p50 %.1f, p99 %.1f, max %.1f; %.1f %% within 2 ms\n", name, len(list), us(sum)/float64(len(list)),
		us(list[len(list)/2]), us(list[len(list)*99/100]), us(list[len(list)-1]), 100*float64(within)/float64(len(list)))
}

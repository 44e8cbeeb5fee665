// Draftbench measures what guessed tokens gain, and what they cost where nothing can be guessed: tokens per
// second of streams with guesses and without, in turn.
//
//	go run ./scripts/draftbench [-streams 1] [-tokens 256] [-rounds 3] [-threads 0] [-memory cpu=4GiB] [-quantize q8_0] [-kinds edit,records,fresh | -self PROMPTS] MODEL
//
// A made model says nothing that repeats itself, so each stream's answer is given: its token is made the
// likeliest of the logits that the model computes. Three kinds of answers: "edit" is the prompt again with
// every 25th token changed, "records" are objects with equal keys and other values, "fresh" are words
// that are as frequent as in a language, in no order.
//
// With -self a trained model answers prompts of a file by itself, and with a draft of itself within the same memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/meta"
)

func main() {
	log.SetFlags(0)
	streams := flag.Int("streams", 1, "requests at once")
	tokens := flag.Int("tokens", 256, "tokens of each answer")
	rounds := flag.Int("rounds", 3, "rounds of both modes in turn")
	threads := flag.Int("threads", 0, "threads that compute; 0: one for each core")
	memory := flag.String("memory", "", "limit of memory, as --max-memory")
	quantize := flag.String("quantize", "", "q8_0 or q4_0")
	kinds := flag.String("kinds", "edit,records,fresh", "answers to measure")
	prompts := flag.String("self", "", "measure --draft self instead, on the prompts of this file, one a line")
	end := flag.Int("end", -1, "token that ends an answer to them")
	onDisk := flag.Bool("disk", false, "stream all weights")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: draftbench MODEL")
	}
	o := dispatch.Options{Threads: *threads, KVTokens: *streams * (3*(*tokens) + 64)}
	if *memory != "" {
		limits, err := devicemap.ParseMaxMemory(*memory)
		check(err)
		o.MaxMemory = limits
	}
	if *onDisk {
		o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})}
	}
	if *prompts != "" {
		check(benchSelf(flag.Arg(0), *prompts, o, *streams, *tokens, *rounds, int32(*end)))
		return
	}
	switch *quantize {
	case "q8_0":
		o.Quantize = meta.QuantQ8
	case "q4_0":
		o.Quantize = meta.QuantQ4
	}
	model, err := dispatch.Open(flag.Arg(0), o)
	check(err)
	defer model.Close()
	model.Warm(context.Background())
	for _, kind := range strings.Split(*kinds, ",") {
		b := &bench{model: model, streams: *streams, tokens: *tokens, kind: kind}
		var speed [2][]float64
		var st engine.Stats
		for round := range *rounds {
			for i := range 2 { // each goes first in turn
				k := (round + i) % 2
				v, s := b.run(k - 1)
				if speed[k] = append(speed[k], v); k == 1 {
					st = s
				}
			}
		}
		var ratios []float64
		for i := range speed[0] {
			ratios = append(ratios, speed[1][i]/speed[0][i])
		}
		fmt.Printf("%-8s %6.2f tokens/s without guesses, %6.2f with: %.2fx (%.2f to %.2f); %d of %d guesses right in %d passes\n", kind,
			median(speed[0]), median(speed[1]), median(ratios), slices.Min(ratios), slices.Max(ratios), st.AcceptedTokens, st.DraftTokens, st.Drafts)
	}
}

// bench runs streams of one kind of answer.
type bench struct {
	model           *dispatch.Model
	streams, tokens int
	kind            string
}

// A scripted model computes as its model does, and prefers the given tokens.
type scripted struct {
	engine.Model
	texts map[int32][]int32 // by first token
	of    map[engine.Sequence]int32
}

func (m *scripted) Forward(ctx context.Context, rows []engine.Row) (engine.Logits, error) {
	starts := make([]int, len(rows))
	for i, r := range rows {
		if starts[i] = r.Sequence.Len(); starts[i] == 0 {
			m.of[r.Sequence] = r.Tokens[0]
		}
	}
	logits, err := m.Model.Forward(ctx, rows)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		count, values := logits.Row(i)
		text := m.texts[m.of[r.Sequence]]
		for k := range count {
			next := starts[i] + len(r.Tokens) - count + k + 1
			if next < len(text) {
				values[k*m.Vocab()+int(text[next])] += 1e6
			}
		}
	}
	return logits, nil
}

// run returns tokens per second after the first of each stream, all streams together.
func (b *bench) run(guesses int) (float64, engine.Stats) {
	m := &scripted{Model: engine.ForDispatch(b.model), texts: map[int32][]int32{}, of: map[engine.Sequence]int32{}}
	e := engine.New(m, engine.Options{DraftTokens: guesses})
	defer e.Close()
	var mu sync.Mutex
	var begin time.Time
	var wait sync.WaitGroup
	started := 0
	for i := range b.streams {
		prompt, answer := b.text(i)
		m.texts[prompt[0]] = slices.Concat(prompt, answer)
		s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt, MaxTokens: len(answer), PromptLogProbs: true})
		check(err)
		wait.Go(func() {
			for n := 0; ; {
				ev, err := s.Next(context.Background())
				if errors.Is(err, io.EOF) {
					return
				}
				check(err)
				if ev.Token == engine.NoToken {
					continue
				}
				if ev.Token != answer[n] {
					log.Fatalf("token %d is %d, want %d", n, ev.Token, answer[n])
				}
				if n++; n == 1 {
					mu.Lock()
					if started++; started == b.streams {
						begin = time.Now()
					}
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	took := time.Since(begin).Seconds()
	return float64(b.streams*(b.tokens-1)) / took, e.Stats()
}

// text is a prompt and the answer to it. Prompts begin with different tokens, so they share no pages.
func (b *bench) text(i int) (prompt, answer []int32) {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	vocab := int32(b.model.Vocab())
	words := rand.NewZipf(r, 1.1, 2, uint64(min(vocab, 20000)-1))
	word := func() int32 { return int32(words.Uint64()) }
	prompt = []int32{int32(i)}
	switch b.kind {
	case "edit":
		for range b.tokens {
			prompt = append(prompt, word())
		}
		for k, id := range prompt[1:] {
			if k%25 == 24 {
				id = r.Int32N(vocab)
			}
			answer = append(answer, id)
		}
	case "records":
		keys := make([]int32, 24)
		for k := range keys {
			keys[k] = r.Int32N(vocab)
		}
		for range 16 {
			prompt = append(prompt, word())
		}
		for k := range b.tokens {
			id := keys[k%len(keys)]
			if k%8 >= 6 {
				id = word()
			}
			answer = append(answer, id)
		}
	default:
		for range 64 {
			prompt = append(prompt, word())
		}
		for range b.tokens {
			answer = append(answer, word())
		}
	}
	return prompt, answer
}

func median(list []float64) float64 {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

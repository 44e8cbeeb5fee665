package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/sample"
	"github.com/heftai/heft/internal/tokenizer"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// selfBench compares a model that streams with the same within the same memory beside a draft of itself, on prompts of a
// file, one a line. Answers are the model's own, those that are likeliest.
type selfBench struct {
	streams, tokens, rounds int
	end                     int32 // ends an answer
	prompts                 [][]int32
	models                  [2]*dispatch.Model // without a draft, and with
	draft                   *dispatch.Model
	answers                 []string // of the first run
}

// benchSelf measures the model at path.
func benchSelf(path, prompts string, o dispatch.Options, streams, tokens, rounds int, end int32) error {
	words, err := tokenizer.Load(path)
	if err != nil {
		return err
	}
	b := &selfBench{streams: streams, tokens: tokens, rounds: rounds, end: end}
	if b.prompts, err = readPrompts(prompts, words); err != nil {
		return err
	}
	skeleton, checkpoint, err := loader.OpenModel(path)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	if b.models[0], err = bound(dispatch.Plan(skeleton, o))(skeleton, checkpoint); err != nil {
		return err
	}
	defer b.models[0].Close()
	draft := dispatch.Options{Threads: o.Threads, KVTokens: o.KVTokens, Quantize: meta.QuantQ4, MaxSequences: o.MaxSequences, MaxMemory: o.MaxMemory}
	plan, options, self, err := dispatch.PlanSelfDraft(skeleton, draft, func(bytes int64) dispatch.Options {
		less := o
		less.MaxMemory = slices.Clone(o.MaxMemory)
		for i := range less.MaxMemory {
			if less.MaxMemory[i].Device == devicemap.CPU {
				less.MaxMemory[i].Bytes -= float64(bytes)
			}
		}
		return less
	})
	if err == nil {
		b.models[1], err = bound(plan, options, err)(skeleton, checkpoint)
	}
	if err != nil {
		return err
	}
	defer b.models[1].Close()
	if b.draft, err = b.models[1].NewSelfDraft(self); err != nil {
		return err
	}
	defer b.draft.Close()
	for _, m := range []*dispatch.Model{b.models[0], b.models[1], b.draft} {
		m.Warm(context.Background())
		for m.Status().Loading.Active() {
			time.Sleep(10 * time.Millisecond)
		}
	}
	streamed := func(m *dispatch.Model) string {
		return devicemap.FormatSize(m.Plan().Device(devicemap.Disk).WeightsBytes)
	}
	fmt.Printf("%s stream without a draft, %s with one of %s\n", streamed(b.models[0]), streamed(b.models[1]), devicemap.FormatSize(self.Bytes))
	return b.compare()
}

// bound makes the model of a plan.
func bound(plan devicemap.Plan, o dispatch.Options, err error) func(*meta.Model, *loader.Checkpoint) (*dispatch.Model, error) {
	return func(skeleton *meta.Model, checkpoint *loader.Checkpoint) (*dispatch.Model, error) {
		if err != nil {
			return nil, err
		}
		return dispatch.New(skeleton, checkpoint, plan.Map, o)
	}
}

// readPrompts returns the ids of the lines of a file.
func readPrompts(file string, words *tokenizer.Tokenizer) (list [][]int32, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		ids, err := words.EncodeIDs(lines.Text(), tokenizer.EncodeOptions{})
		if err != nil {
			return nil, err
		}
		list = append(list, ids)
	}
	return list, lines.Err()
}

// compare runs both in turn.
func (b *selfBench) compare() error {
	var speed [2][]float64
	var st engine.Stats
	for round := range b.rounds {
		for i := range 2 {
			k := (round + i) % 2
			v, s, err := b.run(k)
			if err != nil {
				return err
			}
			if speed[k] = append(speed[k], v); k == 1 {
				st = s
			}
		}
	}
	var ratios []float64
	for i := range speed[0] {
		ratios = append(ratios, speed[1][i]/speed[0][i])
	}
	fmt.Printf("self     %6.2f tokens/s without guesses, %6.2f with: %.2fx (%.2f to %.2f); %d of %d guesses right in %d passes\n",
		median(speed[0]), median(speed[1]), median(ratios), slices.Min(ratios), slices.Max(ratios), st.AcceptedTokens, st.DraftTokens, st.Drafts)
	return nil
}

// run answers all prompts, streams at once, and returns tokens per second of the whole time.
func (b *selfBench) run(k int) (float64, engine.Stats, error) {
	o := engine.Options{DraftTokens: -1}
	if k == 1 {
		o = engine.Options{Draft: engine.ForDispatch(b.draft), DraftFailed: func(err error) { fmt.Println(err) }}
	}
	e := engine.New(engine.ForDispatch(b.models[k]), o)
	defer e.Close()
	answers, failed := make([]string, len(b.prompts)), make([]error, len(b.prompts))
	total := make([]int, len(b.prompts))
	var wait sync.WaitGroup
	begin := time.Now()
	for first := range b.streams {
		wait.Go(func() {
			for i := first; i < len(b.prompts); i += b.streams {
				answers[i], total[i], failed[i] = b.answer(e, b.prompts[i])
			}
		})
	}
	wait.Wait()
	took := time.Since(begin).Seconds()
	if b.answers == nil {
		b.answers = answers
	}
	if err := errors.Join(failed...); err != nil {
		return 0, engine.Stats{}, err
	}
	if !slices.Equal(answers, b.answers) {
		return 0, engine.Stats{}, errors.New("the answers differ")
	}
	sum := 0
	for _, n := range total {
		sum += n
	}
	return float64(sum) / took, e.Stats(), nil
}

// answer returns the tokens of an answer as text, and their number.
func (b *selfBench) answer(e *engine.Engine, prompt []int32) (string, int, error) {
	s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt, MaxTokens: b.tokens, Params: sample.Params{Stop: []int32{b.end}}})
	if err != nil {
		return "", 0, err
	}
	var ids []int32
	for {
		ev, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return fmt.Sprint(ids), len(ids), nil
		}
		if err != nil {
			return "", 0, err
		}
		if ev.Token != engine.NoToken {
			ids = append(ids, ev.Token)
		}
	}
}

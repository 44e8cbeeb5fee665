package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// A timed model takes a time for a pass and one for each token, by the fake clock of a synctest bubble, and counts them. Of the guesses that
// it makes as a draft model, those of one token in wrong are wrong.
type timed struct {
	enginetest.Model
	pass, token    time.Duration
	wrong          int // 0: none is
	passes, tokens int
	rows           int
}

func newTimed(pass, token time.Duration, wrong int) *timed {
	m := &timed{Model: enginetest.Model{MaxLen: 4096, Pages: 1 << 16}, pass: pass, token: token, wrong: wrong}
	m.BeforePass = func(_ context.Context, rows []engine.Row) error {
		n := 0
		for i := range rows {
			n += len(rows[i].Tokens)
		}
		m.passes, m.rows, m.tokens = m.passes+1, m.rows+len(rows), m.tokens+n
		time.Sleep(m.pass + time.Duration(n)*m.token)
		return nil
	}
	return m
}

func (m *timed) Forward(ctx context.Context, rows []engine.Row) (engine.Logits, error) {
	out, err := m.Model.Forward(ctx, rows)
	if err != nil || m.wrong == 0 {
		return out, err
	}
	for i := range rows {
		n, values := out.Row(i)
		if n == 0 {
			continue
		}
		best := 0
		for k, v := range values {
			if v > values[best] {
				best = k
			}
		}
		if id := (best*7 + rows[i].Sequence.Len()) % m.wrong; id == 0 { // without a pattern
			values[best], best = 0, (best+1)%len(values)
		}
		values[best] += 12 // it is sure of all
	}
	return out, nil
}

// simulate runs requests, so many at once, on a model with a draft model, by the fake clock of a synctest bubble. It returns the time
// that they took.
func simulate(t *testing.T, m, d engine.Model, o engine.Options, streams, requests, length, answer int) (took time.Duration, st engine.Stats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Draft = d
		e := engine.New(m, o)
		defer e.Close()
		begin := time.Now()
		done := make(chan error)
		for first := range streams {
			go func() {
				for i := first; i < requests; i += streams {
					s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt(i, length), MaxTokens: answer})
					if err == nil {
						_, err = collect(s, 1)
					}
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range streams {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		took, st = time.Since(begin), counted(t, e)
	})
	return took, st
}

// TestADraftModelWasAskedLessForSeveralStreams: each of several choices had to be worth a whole pass of the draft model,
// though one pass guesses for all of them. A model that streams its weights reads them about as often for an answer of four streams
// as for one of a single stream, and the passes of its draft model have all of the streams.
func TestADraftModelWasAskedLessForSeveralStreams(t *testing.T) {
	var sweeps [2]float64 // of the weights, for each token of a stream
	for i, streams := range []int{1, 4} {
		plain := newTimed(100*time.Millisecond, time.Millisecond, 0)
		without, _ := simulate(t, plain, nil, engine.Options{DraftTokens: -1}, streams, 3*streams, 20, 60)
		m, d := newTimed(100*time.Millisecond, time.Millisecond, 0), newTimed(14*time.Millisecond, time.Millisecond, 6)
		m.Most.Streaming = true
		took, st := simulate(t, m, d, engine.Options{}, streams, 3*streams, 20, 60)
		sweeps[i] = float64(m.passes) / (3 * 60)
		batch := float64(d.rows) / float64(d.passes)
		t.Logf("%d streams: %d sweeps instead of %d, %.1f times as fast; %d of %d guesses right; %d passes of the draft model with %.2f streams",
			streams, m.passes, plain.passes, without.Seconds()/took.Seconds(), st.AcceptedTokens, st.DraftTokens, d.passes, batch)
		if batch < 0.7*float64(streams) {
			t.Errorf("passes of the draft model have %.2f of %d streams", batch, streams)
		}
	}
	if sweeps[1] > 1.3*sweeps[0] {
		t.Errorf("%.2f sweeps for a token of each of 4 streams, %.2f for a token of one", sweeps[1], sweeps[0])
	}
}

// TestLearningThatADraftModelDoesNotPay: whatever a draft model takes and guesses, trying it takes at most 2 % of the time that
// the first answers take without it.
func TestLearningThatADraftModelDoesNotPay(t *testing.T) {
	for name, c := range map[string]struct {
		pass, token time.Duration
		wrong       int
		length      int
		streams     int
	}{
		"never right":               {5 * time.Millisecond, time.Millisecond, 1, 20, 1},
		"never right, four streams": {5 * time.Millisecond, time.Millisecond, 1, 20, 4},
		"half right, slow":          {60 * time.Millisecond, time.Millisecond, 2, 20, 1},
		"as slow as the model":      {100 * time.Millisecond, time.Millisecond, 2, 20, 1},
		"slow at prompts":           {5 * time.Millisecond, 10 * time.Millisecond, 1, 300, 1},
		"slower than the model":     {200 * time.Millisecond, time.Millisecond, 0, 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			without, _ := simulate(t, newTimed(100*time.Millisecond, time.Millisecond, 0), nil, engine.Options{DraftTokens: -1}, c.streams, 4*c.streams, c.length, 100)
			d := newTimed(c.pass, c.token, c.wrong)
			took, _ := simulate(t, newTimed(100*time.Millisecond, time.Millisecond, 0), d, engine.Options{}, c.streams, 4*c.streams, c.length, 100)
			t.Logf("%.4f of the time without; the draft model has computed %d tokens in %d passes", took.Seconds()/without.Seconds(), d.tokens, d.passes)
			if took > without+without/50 {
				t.Errorf("%v with a draft model, %v without", took, without)
			}
			if d.passes == 0 {
				t.Error("the draft model was never asked")
			}
		})
	}
}

// TestADraftModelKeptMemoryThatItDidNotPay: a model that streams 1.3 times the bytes because of the copies of its
// draft continues without the draft if the guesses do not make up for that, so that answers take at most 2 % more
// bytes; and keeps one that does.
func TestADraftModelKeptMemoryThatItDidNotPay(t *testing.T) {
	const alone, beside = 100 * time.Millisecond, 130 * time.Millisecond
	for _, c := range []struct {
		name  string
		wrong int
		slow  bool
	}{{"never right", 1, true}, {"5 of 6 right", 6, false}} {
		without, _ := simulate(t, newTimed(alone, time.Millisecond, 0), nil, engine.Options{DraftTokens: -1}, 1, 4, 20, 400)
		m, d := newTimed(beside, time.Millisecond, 0), newTimed(5*time.Millisecond, time.Millisecond, c.wrong)
		bytes, late := 0.0, 0 // of passes in those of one without a draft, and passes since the draft left
		count := m.BeforePass
		m.BeforePass = func(ctx context.Context, rows []engine.Row) error {
			if bytes += float64(m.pass) / float64(alone); m.pass == alone {
				late++
			}
			return count(ctx, rows)
		}
		asked := 0
		o := engine.Options{DraftNeeds: float64(beside) / float64(alone), DraftFailed: func(err error) {
			if !errors.Is(err, engine.ErrDraftSlow) {
				t.Error(err)
			}
			m.pass, asked = alone, d.passes // the copies' room is the model's again
		}}
		took, _ := simulate(t, m, d, o, 1, 4, 20, 400)
		t.Logf("%s: %.3f of the time, %.1f sweeps for 1600 tokens, %d of them without the draft", c.name, took.Seconds()/without.Seconds(), bytes, late)
		switch {
		case c.slow != (late > 0):
			t.Errorf("%s: %d passes without the draft", c.name, late)
		case c.slow && (bytes > 1600/0.98 || took > without+without/50 || d.passes != asked):
			t.Errorf("%s: %.1f sweeps for 1600 tokens in %v, %v without a draft", c.name, bytes, took, without)
		case !c.slow && 2*took > without:
			t.Errorf("%s: %v, and %v without a draft", c.name, took, without)
		}
	}
}

package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// TestOtherRequestsContinueWhileAPrefixIsRead: a slow store of prefixes held up every request.
func TestOtherRequestsContinueWhileAPrefixIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := engine.Request{Prompt: prompt(1, 30), MaxTokens: 5}
		m := &enginetest.Model{Delay: time.Second}
		m.Restore = func(p []int32, ready func()) bool {
			if len(p) == 30 {
				time.AfterFunc(time.Minute, ready)
			}
			return len(p) == 30
		}
		e := engine.New(m, engine.Options{MaxBatch: 4})
		defer e.Close()
		begin := time.Now()
		first := submit(t, e, slow)
		var took []time.Duration
		for i := range 3 {
			r := engine.Request{Prompt: prompt(i+2, 9), MaxTokens: 5}
			got, err := collect(submit(t, e, r), 1)
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(begin))
			if want, _ := alone(t, m, e.Limit(), r, 0); !slices.Equal(got[0].tokens, want) {
				t.Errorf("request %d: got %v, want %v", i, got[0].tokens, want)
			}
		}
		if took[2] > 20*time.Second {
			t.Errorf("others took %v, want 5 s each", took)
		}
		got, err := collect(first, 1)
		if want, _ := alone(t, m, e.Limit(), slow, 0); err != nil || !slices.Equal(got[0].tokens, want) {
			t.Errorf("got %v and %v, want %v", got[0].tokens, err, want)
		}
		if d := time.Since(begin); d < time.Minute || d > 66*time.Second {
			t.Errorf("the slow request took %v", d)
		}
		synctest.Wait() // a pass is counted after its events
		if st := e.Stats(); st.Running+st.Waiting+st.KV.Used != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestAFastStoreDelaysNoPrompt: if a prefix is read in a fraction of a pass, the pass waits for it.
func TestAFastStoreDelaysNoPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &enginetest.Model{Delay: 10 * time.Second}
		m.Restore = func(_ []int32, ready func()) bool {
			time.AfterFunc(100*time.Millisecond, ready)
			return true
		}
		e := engine.New(m, engine.Options{MaxBatch: 4})
		defer e.Close()
		submit(t, e, engine.Request{Prompt: prompt(1, 9), MaxTokens: 50})
		time.Sleep(15 * time.Second) // the second pass runs
		begin := time.Now()
		s := submit(t, e, engine.Request{Prompt: prompt(2, 9), MaxTokens: 1})
		if _, err := collect(s, 1); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 16*time.Second {
			t.Errorf("the prompt took %v, want the rest of a pass and another one", d)
		}
	})
}

// TestReadingAPrefixIsCancelled: by its client and by Close. A prefix that is read while pages are too few waits
// for them.
func TestReadingAPrefixIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var waiting []func()
		m := &enginetest.Model{Delay: time.Second, Pages: 24}
		m.Restore = func(p []int32, ready func()) bool {
			mu.Lock()
			defer mu.Unlock()
			waiting = append(waiting, ready)
			return len(p) == 30
		}
		e := engine.New(m, engine.Options{MaxBatch: 4})
		defer e.Close()
		ctx, cancel := context.WithCancel(context.Background())
		left, err := e.Submit(ctx, engine.Request{Prompt: prompt(1, 30), MaxTokens: 5})
		if err != nil {
			t.Fatal(err)
		}
		kept := submit(t, e, engine.Request{Prompt: prompt(2, 30), MaxTokens: 5})
		old := engine.Request{Prompt: prompt(3, 9), MaxTokens: 70} // it needs most pages in the end
		older := submit(t, e, old)
		time.Sleep(3 * time.Second)
		cancel()
		if _, err := left.Next(context.Background()); err == nil {
			t.Error("a cancelled request goes on")
		}
		time.Sleep(60 * time.Second) // older has 18 of the 24 pages
		mu.Lock()
		waiting[1]()
		mu.Unlock()
		got, err := collect(older, 1)
		if want, _ := alone(t, m, e.Limit(), old, 0); err != nil || !slices.Equal(got[0].tokens, want) {
			t.Errorf("got %v and %v, want %v", got[0].tokens, err, want)
		}
		mu.Lock()
		for _, ready := range waiting { // also those that were cancelled
			ready()
		}
		mu.Unlock()
		if _, err := collect(kept, 1); err != nil {
			t.Error(err)
		}
		last := submit(t, e, engine.Request{Prompt: prompt(4, 30), MaxTokens: 5})
		time.Sleep(time.Second)
		e.Close()
		if _, err := collect(last, 1); err != engine.ErrClosed {
			t.Errorf("got %v, want %v", err, engine.ErrClosed)
		}
	})
}

package engine_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
)

// TestWindowsServeLongRequestsInFewPages: with pages for the windows of one sequence, the
// limit is the model's context, and requests that share those pages end as each alone.
func TestWindowsServeLongRequestsInFewPages(t *testing.T) {
	dir := golden.OwnDir(t, "small-starcoder2-window-bf16")
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checkpoint.Close() })
	serve := func(o dispatch.Options) *engine.Engine {
		o.Threads, o.Precision = 1, dispatch.PrecisionHigh
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		e := engine.New(engine.ForDispatch(m), engine.Options{MaxBatchTokens: 8})
		t.Cleanup(e.Close)
		return e
	}
	plenty, few := serve(dispatch.Options{KVTokens: 1024}), serve(dispatch.Options{MaxBatchTokens: 8})
	if kv := few.Stats().KV; few.Limit() != 128 || kv.Pages*kv.PageTokens >= 64 {
		t.Errorf("limit %d with %d pages", few.Limit(), kv.Pages)
	}
	var streams, want []*engine.Stream
	for i := range 4 {
		r := engine.Request{Prompt: prompt(i, 40+10*i), MaxTokens: -1}
		streams, want = append(streams, submit(t, few, r)), append(want, submit(t, plenty, r))
	}
	for i := range streams {
		got, err := collect(streams[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		exact, err := collect(want[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[0].tokens, exact[0].tokens) || len(got[0].tokens) != 128-(40+10*i) {
			t.Errorf("request %d: %d tokens %v, want %v", i, len(got[0].tokens), got[0].tokens, exact[0].tokens)
		}
	}
}

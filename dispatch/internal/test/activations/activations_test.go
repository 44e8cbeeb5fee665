package activations_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestALongPromptBorrowsActivationsFromExperts: activations of the longest pass took memory from the
// experts' cache while single tokens were generated, so plans chose short passes, and a prompt of 2,000
// tokens read all experts twice or more.
func TestALongPromptBorrowsActivationsFromExperts(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 300)
	// One thread: with two, the memory of the one that first computes in a later pass would grow then.
	o := dispatch.Options{Threads: 1, Context: 256, MaxBatchTokens: 128, MaxSequences: 2}
	const prompt = 128
	ids := dispatchtest.Scattered(prompt + 8)
	whole := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, whole, ids, prompt, 32)
	whole.Close()

	o.Ledger = new(dispatch.Ledger)
	m := borrowingModel(t, dir, o)
	if n := m.BatchLimits().Tokens; n != 128 {
		t.Fatalf("batches of %d tokens, want 128", n)
	}
	pass := func(s *dispatch.Sequence, tokens []int32) [][]float32 {
		t.Helper()
		row := dispatch.BatchRow{Sequence: s, Tokens: tokens, PromptLen: prompt, Logits: dispatch.LogitsLast}
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}})
		if err != nil {
			t.Fatal(err)
		}
		return dispatchtest.Rows(out, 0)
	}
	first := m.NewSequence()
	pass(first, ids[:prompt]) // the kernels' own memory grows once
	pass(first, ids[prompt:][:1])
	before := o.Ledger.Held()
	sum := func(h map[string]int64) int64 { return h["staging"] + h["kv"] + h["activations"] }
	all := sum(before)
	held := func(when string) map[string]int64 {
		t.Helper()
		h := o.Ledger.Held()
		if n := sum(h); n > all+all/16 { // slots are whole pages
			t.Errorf("%s: the model holds %d bytes, before it held %d: %v", when, n, all, h)
		}
		return h
	}
	first.Free()
	s := m.NewSequence()
	defer s.Free()
	dispatchtest.SameLogits(t, "the long pass", pass(s, ids[:prompt]), want[prompt-1:prompt])
	during := held("after the long pass")
	if during["activations"] <= before["activations"] || during["staging"] >= before["staging"] {
		t.Errorf("activations went from %d to %d bytes, staging from %d to %d; want memory borrowed",
			before["activations"], during["activations"], before["staging"], during["staging"])
	}
	for at := prompt; at < len(ids); at++ {
		dispatchtest.SameLogits(t, "a generated token", pass(s, ids[at:at+1]), want[at:at+1])
	}
	// The scratch memory of operations grows in steps, to the plan's at most.
	after, planned := held("after tokens")["activations"], m.Plan().Device(devicemap.CPU).ActivationBytes
	if after > planned || after >= during["activations"] {
		t.Errorf("activations hold %d bytes after tokens, %d during the prompt; %d are planned", after, during["activations"], planned)
	}
	m.SetMemoryLimit(1)
	if n := m.BatchLimits().Tokens; n >= 128 {
		t.Errorf("batches of %d tokens under the smallest limit, want fewer", n)
	}
}

// borrowingModel returns a model that streams experts and whose long passes borrow activations.
func borrowingModel(t *testing.T, dir string, o dispatch.Options) *dispatch.Model {
	t.Helper()
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o = dispatchtest.Borrowing(o)
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least - need.Runtime + (need.All-need.Least)/5)}}
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestALongPromptReadsStreamedExpertsOnce: the plan of a model of which little fits kept batches of 512
// tokens, as activations of more would have taken memory from the experts.
func TestALongPromptReadsStreamedExpertsOnce(t *testing.T) {
	for _, limit := range []int64{400 << 20, 600 << 20, 900 << 20} {
		plan, o := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, "moe-1b"), dispatchtest.ServingOptions(limit))
		if o.MaxBatchTokens < 2048 {
			t.Errorf("%d MiB: batches of %d tokens, want 2048 or more", limit>>20, o.MaxBatchTokens)
		}
		asked := dispatchtest.ServingOptions(limit)
		asked.MaxBatchTokens = 512
		if short, _ := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, "moe-1b"), asked); plan.DiskBytesPerToken > short.DiskBytesPerToken {
			t.Errorf("%d MiB: a token reads %d bytes, %d with batches of 512 tokens", limit>>20, plan.DiskBytesPerToken, short.DiskBytesPerToken)
		}
	}
}

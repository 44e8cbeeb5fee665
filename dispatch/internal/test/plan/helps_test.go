package plan_test

import (
	"math"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// usual is a machine with a disk of 2 GB/s.
var usual = dispatch.MachineSpeed{MemoryBytes: 40e9, DiskBytes: 2e9, Operations32: 2e11, Operations16: 5e11}

// Each suggested change helps, and the most effective one comes first.
func TestWhatHelps(t *testing.T) {
	skeleton, o := dispatchtest.ModelShape(t, "dense-405b"), dispatchtest.ServingOptions(200*dispatchtest.GiB)
	o.CacheDir = t.TempDir()
	plan, _ := dispatchtest.PlanShape(t, skeleton, o)
	now := dispatch.Predict(skeleton, plan, "", usual)
	helps := dispatch.NewPlanner(skeleton).WhatHelps(o, plan, "", usual)
	if len(helps) != 4 || helps[0].Quantize != meta.QuantQ4 || helps[1].Quantize != meta.QuantQ8 || helps[2].Compress != "exact" || helps[3].MoreBytes != 64*dispatchtest.GiB {
		t.Fatalf("%+v, want q4_0, q8_0, coded weights and 64 GiB more", helps)
	}
	for i, h := range helps {
		changed, dtype := o, ""
		switch {
		case h.MoreBytes > 0:
			changed.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(200*dispatchtest.GiB + h.MoreBytes)}}
		case h.Compress != "":
			changed.Compress, dtype = dispatch.CompressExact, meta.QuantCoded.String()
		default:
			changed.Quantize, dtype = h.Quantize, h.Format
		}
		plan, _ := dispatchtest.PlanShape(t, skeleton, changed)
		then := dispatch.Predict(skeleton, plan, dtype, usual)
		if *then.TokensPerSecond != h.TokensPerSecond || h.TokensPerSecond < *now.TokensPerSecond {
			t.Errorf("%+v: %v tokens/s with it, %v without", h, *then.TokensPerSecond, *now.TokensPerSecond)
		}
		if i > 0 && h.TokensPerSecond > helps[i-1].TokensPerSecond {
			t.Errorf("%+v comes after %+v", h, helps[i-1])
		}
	}
	plan, _ = dispatchtest.PlanShape(t, skeleton, dispatchtest.ServingOptions(900*dispatchtest.GiB))
	if helps := dispatch.NewPlanner(skeleton).WhatHelps(dispatchtest.ServingOptions(900*dispatchtest.GiB), plan, "", usual); helps != nil {
		t.Errorf("%+v for a model in memory", helps)
	}
	short := dispatchtest.ServingOptions(2300 << 20) // the rest is less than a step
	moe := dispatchtest.ModelShape(t, "moe-1b")
	plan, _ = dispatchtest.PlanShape(t, moe, short)
	fit, _ := dispatch.NewPlanner(moe).FitsWith(short, plan)
	for _, h := range dispatch.NewPlanner(moe).WhatHelps(short, plan, "", usual) {
		if h.MoreBytes > 0 && h.MoreBytes != fit.LimitBytes-2300<<20 {
			t.Errorf("%d bytes more, and all fits with %d", h.MoreBytes, fit.LimitBytes-2300<<20)
		}
	}
}

// TestPlansNameExactCodes: coded weights, which change no answer, were not among what helps. Their file has all coded matrices.
func TestPlansNameExactCodes(t *testing.T) {
	skeleton, o := dispatchtest.ModelShape(t, "dense-405b"), dispatchtest.ServingOptions(200*dispatchtest.GiB)
	o.CacheDir = t.TempDir()
	plan, _ := dispatchtest.PlanShape(t, skeleton, o)
	c, ok := dispatch.NewPlanner(skeleton).CodedInstead(o, plan)
	if !ok || c.Plan.DiskBytesPerToken*4 > plan.DiskBytesPerToken*3 || c.Options.LoadedAs() != meta.QuantCoded {
		t.Fatalf("got %v, %+v", ok, c)
	}
	if coding := dispatch.CodingOf(skeleton, &c.Plan, &c.Options); c.KeptBytes >= coding.Bytes || c.KeptBytes < coding.Bytes*9/10 {
		t.Errorf("%d bytes are kept, want most of %d", c.KeptBytes, coding.Bytes)
	}
	for name, change := range map[string]func(*dispatch.Options){
		"coded":     func(o *dispatch.Options) { o.Compress = dispatch.CompressExact },
		"converted": func(o *dispatch.Options) { o.Quantize = meta.QuantQ8 },
		"no folder": func(o *dispatch.Options) { o.CacheDir = "" },
		"in memory": func(o *dispatch.Options) { *o = dispatchtest.ServingOptions(900 * dispatchtest.GiB) },
	} {
		o := o
		change(&o)
		plan, _ := dispatchtest.PlanShape(t, skeleton, o)
		if c, ok := dispatch.NewPlanner(skeleton).CodedInstead(o, plan); ok {
			t.Errorf("%s: %d instead of %d bytes a token", name, c.Plan.DiskBytesPerToken, plan.DiskBytesPerToken)
		}
	}
}

// TestCodingIsNotOfferedWhereNothingIsRead: with a limit far below the minimum, the memory of the KV cache holds all weights of
// a small model, and the log said that coding them would read 0 B instead of 0 B for a token.
func TestCodingIsNotOfferedWhereNothingIsRead(t *testing.T) {
	skeleton, o := dispatchtest.ModelShape(t, "dense-405b"), dispatchtest.ServingOptions(700*dispatchtest.GiB) // coded, all fits
	o.CacheDir = t.TempDir()
	plan, _ := dispatchtest.PlanShape(t, skeleton, o)
	plan.DiskBytesPerToken = 0
	if c, ok := dispatch.NewPlanner(skeleton).CodedInstead(o, plan); ok {
		t.Errorf("%d instead of 0 bytes a token", c.Plan.DiskBytesPerToken)
	}
}

// A pass for several sequences takes as long as for one while weights stream, and a prompt as many
// passes as its tokens need.
func TestPredictRun(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "dense-405b")
	plan, o := dispatchtest.PlanShape(t, skeleton, dispatchtest.ServingOptions(200*dispatchtest.GiB))
	read := float64(plan.DiskBytesPerToken)
	one := dispatch.PredictRun(skeleton, plan, "", usual, dispatch.Run{PromptTokens: 100, BatchTokens: o.MaxBatchTokens, Sequences: 1})
	eight := dispatch.PredictRun(skeleton, plan, "", usual, dispatch.Run{PromptTokens: 4097, BatchTokens: o.MaxBatchTokens, Sequences: 8})
	near(t, "one: tokens a second", one.TokensPerSecond, usual.DiskBytes/read)
	near(t, "eight: tokens a second", eight.TokensPerSecond, 8*usual.DiskBytes/read)
	near(t, "eight: disk bytes", eight.DiskBytesPerToken, read)
	near(t, "one: first token", one.FirstTokenSeconds, read/usual.DiskBytes)
	if first := *eight.FirstTokenSeconds; first < 2*read/usual.DiskBytes {
		t.Errorf("4097 tokens in %v s", first)
	}

	moe := dispatchtest.ModelShape(t, "moe-1b")
	plan, _ = dispatchtest.PlanShape(t, moe, dispatchtest.ServingOptions(900<<20))
	few := dispatch.PredictRun(moe, plan, "", usual, dispatch.Run{Sequences: 1})
	many := dispatch.PredictRun(moe, plan, "", usual, dispatch.Run{Sequences: 1000})
	near(t, "mixture: disk bytes", few.DiskBytesPerToken, float64(plan.DiskBytesPerToken))
	missed := (1 - plan.ExpertHitRate) * float64(plan.ExpertBytesPerToken)
	all := float64(plan.DiskBytesPerToken) - missed + float64(plan.UncachedExpertBytes())
	if got := *many.DiskBytesPerToken; !(math.Abs(got-all) <= 1e-3*all) {
		t.Errorf("1000 sequences read %v bytes, want all %v that are not cached", got, all)
	}
	// Experts that are missing are read after their router has run.
	step, err := dispatch.BytesPerToken(moe, "")
	if err != nil {
		t.Fatal(err)
	}
	need, err := dispatch.EstimateMemory(moe, dispatch.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	cached := float64(need.KVPerToken) / 0.55 // the generated token itself
	ahead := max((float64(step)-missed+cached)/usual.MemoryBytes, (float64(plan.DiskBytesPerToken)-missed)/usual.DiskBytes)
	if got, want := 1 / *few.TokensPerSecond, ahead+missed/usual.DiskBytes; !(math.Abs(got-want) <= 1e-6*want) {
		t.Errorf("a token takes %v s, want %v", got, want)
	}
}

// TestAPromptWasPredictedToHitTheCacheAsATokenDoes: the cache has the experts that are requested most, so of those
// that eight tokens request together it has a smaller share than of those of one token.
func TestAPromptWasPredictedToHitTheCacheAsATokenDoes(t *testing.T) {
	moe := dispatchtest.ModelShape(t, "moe-1b")
	plan, _ := dispatchtest.PlanShape(t, moe, dispatchtest.ServingOptions(900<<20))
	read := func(n int) float64 {
		return *dispatch.PredictRun(moe, plan, "", usual, dispatch.Run{Sequences: n}).DiskBytesPerToken
	}
	var spec *meta.MoESpec
	for _, m := range moe.Root.Walk() {
		if s, ok := m.Spec.(*meta.MoESpec); ok {
			spec = s
		}
	}
	chosen := float64(spec.TopK) / float64(spec.Count)
	requested := (1 - math.Pow(1-chosen, 8)) / chosen // by eight tokens together, one requests 1
	if one, eight := read(1), read(8); eight < 1.1*requested*one || eight > 8*one {
		t.Errorf("eight tokens read %.1f MB, one %.1f MB; eight request %.2f times as many experts", eight/1e6, one/1e6, requested)
	}
}

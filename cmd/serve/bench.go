package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/probe"
	"github.com/heftai/heft/loader"
)

// benchCmd is serve bench.
type benchCmd struct {
	modelFlags
	placeFlags
	sizeFlags
	adapterFlags
	PromptTokens int    `help:"Process a prompt of N tokens; 0 starts with an empty context (default ${default})." default:"128" placeholder:"N"`
	DecodeTokens int    `help:"Generate N tokens; 0 measures only the prompt (default ${default})." default:"32" placeholder:"N"`
	Batch        int    `help:"Decode N sequences together (default ${default})." default:"1" placeholder:"N"`
	Compare      string `help:"Print ratios to the results of an earlier --json run." type:"existingfile" placeholder:"FILE"`
	Weights      string `help:"Measure CPU-tier weights promoted to memory or mapped (default ${default})." enum:"promoted,mapped" default:"promoted" placeholder:"promoted|mapped"`
	NoProbe      bool   `help:"Do not measure the machine."`
	Trace        string `help:"Record the routed experts of each pass in FILE." placeholder:"FILE"`
	JSON         bool   `name:"json" help:"Print one JSON object."`
}

// Run measures one model: each prompt alone, then all sequences decoding together.
func (c *benchCmd) Run(ctx context.Context, out cmdline.Output) error {
	if err := c.check(); err != nil {
		return err
	}
	other, err := readOther(c.Compare)
	if err != nil {
		return cmdline.Misusef("--compare %s: %w", c.Compare, err)
	}
	adapters, _, err := c.adapters("")
	if err != nil {
		return err
	}
	c.MaxBatch = max(cmp.Or(c.MaxBatch, usualSequences), c.Batch)
	model, checkpoint, err := c.load(adapters)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	defer model.Close()
	if need := c.PromptTokens + c.DecodeTokens; need > model.Context() {
		return cmdline.Misusef("got %d tokens by --prompt-tokens and --decode-tokens, want at most %d, the context", need, model.Context())
	}
	result, err := c.measure(ctx, model, checkpoint, adapters)
	if err != nil {
		return err
	}
	if result.Ratios, err = ratios(result, other); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, result)
	}
	return result.print(out)
}

func (c *benchCmd) check() error {
	if c.PromptTokens < 0 || c.DecodeTokens < 0 || c.PromptTokens+c.DecodeTokens == 0 {
		return cmdline.Misusef("got --prompt-tokens %d and --decode-tokens %d, want at least 0 each, and at least 1 together", c.PromptTokens, c.DecodeTokens)
	}
	if c.Weights == "mapped" && c.Compress == "exact" {
		return cmdline.Misusef("--weights mapped with --compress exact: mapped weights are used as stored, not coded; leave one of them out")
	}
	if c.Weights == "mapped" && c.Quantize != "none" {
		return cmdline.Misusef("--weights mapped with --quantize %s: mapped weights are used as stored, not converted; leave one of them out", c.Quantize)
	}
	if c.Batch < 1 {
		return cmdline.Misusef("--batch: got %d, want at least 1", c.Batch)
	}
	return nil
}

// load places and binds the model. The caller closes both.
func (c *benchCmd) load(adapters []dispatch.Adapter) (*dispatch.Model, *loader.Checkpoint, error) {
	path, err := c.path()
	if err != nil {
		return nil, nil, err
	}
	o, err := c.options()
	if err != nil {
		return nil, nil, err
	}
	if c.Weights == "mapped" {
		o.Compress = dispatch.CompressNone
	}
	if err := c.place(&o); err != nil {
		return nil, nil, err
	}
	o.Adapters = adapters
	s, err := newSource(path)
	if err != nil {
		return nil, nil, err
	}
	skeleton, checkpoint, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	useKept(c.CacheDir, skeleton, &o)
	o = o.KnownCoding(skeleton, checkpoint)
	if err = c.checkLength(skeleton); err == nil {
		err = c.applyDtype(skeleton, &o)
	}
	if err == nil {
		var plan devicemap.Plan
		plan, o, err = dispatch.Plan(skeleton, o)
		if err == nil {
			o.KVTokens = max(o.KVTokens, c.Batch*(c.PromptTokens+c.DecodeTokens+c.settling(plan)+16))
			var model *dispatch.Model
			if model, err = dispatch.New(skeleton, checkpoint, plan.Map, o); err == nil {
				return model, checkpoint, nil
			}
		}
	}
	_ = checkpoint.Close() // the first error is more useful
	if refused(err) {
		err = cmdline.Misuse(err)
	}
	return nil, nil, err
}

// measure loads the weights and runs a pass, then measures between two measurements of the
// machine's rates.
func (c *benchCmd) measure(ctx context.Context, m *dispatch.Model, checkpoint *loader.Checkpoint, adapters []dispatch.Adapter) (*benchResult, error) {
	weights, err := dispatch.BytesPerToken(m.Skeleton(), loadedAs(m.LoadedAs(), ""))
	if err != nil {
		return nil, err
	}
	r := &benchResult{Model: c.name(), PromptTokens: c.PromptTokens, DecodeTokens: c.DecodeTokens, Batch: c.Batch,
		Weights: c.Weights, Quantize: m.Quantized().String(), Compress: compressName(m.LoadedAs()), Precision: c.Precision, WeightBytesPerToken: weights, Roofs: []*probe.Rates{}}
	k := m.Kernels()
	r.Threads, r.Variant = k.Threads, k.Variant
	if m.Status().TierBytes[devicemap.CPU] == 0 {
		r.Weights = "streamed"
	}
	leaveRoomFor(m)
	if err := c.warm(ctx, m); err != nil {
		return nil, err
	}
	r.LoadSeconds = m.Measured().LoadSeconds
	if err := c.promote(ctx, m, r); err != nil {
		return nil, err
	}
	if err := c.roof(ctx, r, checkpoint); err != nil {
		return nil, err
	}
	if err := c.alone(ctx, m, r, adapters); err != nil {
		return nil, err
	}
	if c.Trace != "" {
		if err := m.RecordRouting(); err != nil {
			return nil, err
		}
	}
	if err = c.generate(ctx, m, r); err == nil {
		err = c.roof(ctx, r, checkpoint)
	}
	if err == nil {
		err = m.SaveExpertHits(measurementsDir(c.CacheDir))
	}
	r.share(m.Skeleton())
	r.expect(m)
	if err == nil && c.Trace != "" {
		plan := m.PlanWith(r.Batch, r.PromptTokens+r.DecodeTokens)
		r.Replay, err = saveTrace(m, c.Trace, measurementsDir(c.CacheDir), plan.CachedExpertBytes())
	}
	return r, err
}

// alone measures the base without its adapters, to show their cost.
func (c *benchCmd) alone(ctx context.Context, m *dispatch.Model, r *benchResult, adapters []dispatch.Adapter) error {
	if len(adapters) == 0 {
		return nil
	}
	base := &benchResult{}
	if err := c.generate(ctx, m, base); err != nil {
		return err
	}
	r.Base = &baseRates{base.PromptTokensPerSecond, base.DecodeTokensPerSecond}
	for _, a := range adapters {
		r.Adapters = append(r.Adapters, a.Name)
	}
	return nil
}

// generate computes the prompts and generates tokens after them.
func (c *benchCmd) generate(ctx context.Context, m *dispatch.Model, r *benchResult) error {
	rows, err := c.prompts(ctx, m, r)
	for i := range rows {
		defer rows[i].Sequence.Free()
	}
	if err == nil && c.DecodeTokens > 0 {
		err = c.decode(ctx, m, rows, r)
	}
	return err
}

func (c *benchCmd) name() string {
	if path, _ := c.path(); path != "" {
		return path
	}
	return "demo"
}

// warm reads the cpu tier into memory, fills the cache of experts and runs one pass.
func (c *benchCmd) warm(ctx context.Context, m *dispatch.Model) error {
	<-m.TuneReads(ctx, measurementsDir(c.CacheDir))
	m.Warm(ctx)
	for {
		switch st := m.Status(); {
		case st.Loading.Err != nil:
			return st.Loading.Err
		case st.Loading.Filled:
			s := m.NewSequence()
			defer s.Free()
			return prefill(ctx, m, s, []int32{1})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// roof measures the machine's rates with the model's threads and kernels.
func (c *benchCmd) roof(ctx context.Context, r *benchResult, checkpoint *loader.Checkpoint) error {
	if c.NoProbe {
		return nil
	}
	o := probe.Options{Threads: []int{r.Threads}, Variant: r.Variant, MemoryBytes: dispatch.HostMemory() / 4}
	for _, f := range checkpoint.Files() {
		if f.Path != "" {
			o.Files = append(o.Files, f.Path)
		}
	}
	rates, err := probe.Run(ctx, o)
	r.Roofs = append(r.Roofs, rates)
	return err
}

// prompts computes a random prompt for each sequence, and returns the rows of the next pass.
func (c *benchCmd) prompts(ctx context.Context, m *dispatch.Model, r *benchResult) ([]dispatch.BatchRow, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	rows := make([]dispatch.BatchRow, c.Batch)
	for i := range rows {
		s, err := m.NewAdaptedSequence(r.adapter(i))
		if err != nil {
			return rows[:i], err
		}
		rows[i] = dispatch.BatchRow{Sequence: s, Tokens: []int32{1}, PromptLen: max(c.PromptTokens, 1), Logits: dispatch.LogitsLast}
	}
	if c.PromptTokens == 0 {
		return rows, nil
	}
	prompt := make([]int32, c.PromptTokens)
	read := m.Status().TierReadBytes
	begin := time.Now()
	for i := range rows {
		for k := range prompt {
			prompt[k] = int32(rng.IntN(m.Vocab()))
		}
		if err := prefill(ctx, m, rows[i].Sequence, prompt); err != nil {
			return rows, err
		}
		if i == 0 {
			r.PromptDiskBytes = pointer(float64(m.Status().TierReadBytes - read))
			r.TimeToFirstTokenSeconds = time.Since(begin).Seconds()
		}
	}
	r.PromptTokensPerSecond = rate(float64(c.Batch*c.PromptTokens), time.Since(begin))
	return rows, nil
}

// prefill computes a prompt in chunks and the logits of its last token.
func prefill(ctx context.Context, m *dispatch.Model, s *dispatch.Sequence, prompt []int32) error {
	limit := m.BatchLimits().Tokens
	for at := 0; at < len(prompt); {
		n := min(limit, len(prompt)-at)
		row := dispatch.BatchRow{Sequence: s, Tokens: prompt[at : at+n], PromptLen: len(prompt)}
		if at += n; at == len(prompt) {
			row.Logits = dispatch.LogitsLast
		}
		if _, err := m.Forward(ctx, &dispatch.Batch{Rows: []dispatch.BatchRow{row}}); err != nil {
			return err
		}
	}
	return nil
}

// settling is the number of tokens after which the cache of routed experts is measured. A cache
// that still fills reads more than a full one. Plans predict a full cache: they replay a routing
// without its first quarter.
func (c *benchCmd) settling(plan devicemap.Plan) int {
	if plan.ExpertCacheBytes == 0 {
		return 0
	}
	return (c.DecodeTokens + 2) / 3
}

// settle generates unmeasured tokens until the cache of experts is full, or the context has no more
// room.
func (c *benchCmd) settle(ctx context.Context, m *dispatch.Model, s *stepper, r *benchResult) error {
	n := min(c.settling(m.Plan()), m.Context()-c.PromptTokens-c.DecodeTokens-1)
	if n <= 0 {
		return nil
	}
	read := m.Status().TierReadBytes
	for range n {
		if err := s.step(ctx, m); err != nil {
			return err
		}
	}
	r.Settling = &settling{Tokens: n, DiskBytesPerToken: float64(m.Status().TierReadBytes-read) / float64(n)}
	return nil
}

// decode generates random tokens, which cost as much as any others. With --trace the model chooses
// them, so that the routing is that of text. If the context has room for one more token, the first
// one is not measured, because it allocates memory that later ones reuse.
func (c *benchCmd) decode(ctx context.Context, m *dispatch.Model, rows []dispatch.BatchRow, r *benchResult) error {
	s := stepper{batch: &dispatch.Batch{Rows: rows}, rng: rand.New(rand.NewPCG(2, 2)), vocab: m.Vocab(), choose: c.Trace != ""}
	begin := time.Now()
	if c.PromptTokens+c.DecodeTokens < m.Context() {
		if err := s.step(ctx, m); err != nil {
			return err
		}
	}
	if c.PromptTokens == 0 {
		r.TimeToFirstTokenSeconds = time.Since(begin).Seconds()
	}
	if err := c.settle(ctx, m, &s, r); err != nil {
		return err
	}
	runtime.GC()
	var before, after runtime.MemStats
	status := m.Status()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range c.DecodeTokens {
		if err := s.step(ctx, m); err != nil {
			return err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	end := m.Status()
	steps, disk := float64(c.DecodeTokens), float64(end.TierReadBytes-status.TierReadBytes)
	r.DecodeTokensPerSecond = rate(steps*float64(c.Batch), took)
	r.DecodeBytesPerSecond = rate(float64(r.WeightBytesPerToken)*steps, took)
	r.DiskBytesPerToken, r.DiskBytesPerSecond = pointer(disk/steps), rate(disk, took)
	r.tiers(status, end)
	r.StallSeconds = pointer((end.Stall - status.Stall).Seconds())
	r.count(status.Experts, end.Experts)
	r.AllocationsPerToken = pointer(float64(after.Mallocs-before.Mallocs) / steps)
	if r.Promotion != nil {
		r.Promotion.After = r.DecodeTokensPerSecond
	}
	return nil
}

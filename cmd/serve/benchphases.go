package main

import (
	"context"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// promotion is the decoding speed while the cpu tier moves from the checkpoint's mapping to
// allocated memory, in tokens per second of all sequences.
type promotion struct {
	Before  *float64 `json:"before_tokens_per_second"`
	During  *float64 `json:"during_tokens_per_second"` // null if it ended before the first token
	After   *float64 `json:"after_tokens_per_second"`
	Seconds float64  `json:"seconds"` // its duration while tokens were decoded
}

// beforeTokens is the number of tokens generated before promotion begins.
const beforeTokens = 8

// promote promotes the cpu tier, if that is to be measured, and decodes meanwhile.
func (c *benchCmd) promote(ctx context.Context, m *dispatch.Model, r *benchResult) error {
	if c.Weights == "mapped" {
		return nil
	}
	shown := c.DecodeTokens > 0 && c.Quantize == "none" && m.Status().TierBytes[devicemap.CPU] > 0
	if !shown {
		m.Promote(ctx)
		return awaitPromotion(ctx, m)
	}
	batch := &dispatch.Batch{}
	for range c.Batch {
		s := m.NewSequence()
		defer s.Free()
		batch.Rows = append(batch.Rows, dispatch.BatchRow{Sequence: s, Tokens: []int32{1}, PromptLen: 1, Logits: dispatch.LogitsLast})
	}
	room := m.Context() - 1
	step := func() error {
		room--
		_, err := m.Forward(ctx, batch)
		return err
	}
	if err := step(); err != nil {
		return err
	}
	r.Promotion = &promotion{}
	n, start := 0, time.Now()
	for ; n < min(beforeTokens, room/2); n++ {
		if err := step(); err != nil {
			return err
		}
	}
	r.Promotion.Before = rate(float64(n*c.Batch), time.Since(start))
	m.Promote(ctx)
	n, start = 0, time.Now()
	for st := m.Status(); !st.Promoted && st.PromoteErr == nil && room > 0 && n < c.PromptTokens+c.DecodeTokens; st = m.Status() {
		if err := step(); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		r.Promotion.During = rate(float64(n*c.Batch), time.Since(start))
	}
	err := awaitPromotion(ctx, m)
	r.Promotion.Seconds = time.Since(start).Seconds()
	return err
}

func awaitPromotion(ctx context.Context, m *dispatch.Model) error {
	for {
		if st := m.Status(); st.Promoted || st.PromoteErr != nil {
			return st.PromoteErr
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// promptRoofs returns the kinds of products that the kernels of a variant may use for prompts, with
// weights of the given bits or converted to quantize. The fastest of them is the limit.
func promptRoofs(variant, quantize string, bits int) []string {
	roofs := []string{"fma"}
	switch {
	case variant == "go":
		return nil
	case bits > 16 && quantize == "none":
		return roofs
	case variant == "amx":
		roofs = append(roofs, "amx_bf16")
	}
	if variant == "amx" || variant == "avx512bf16" {
		roofs = append(roofs, "bf16")
	}
	if variant != "avx2" && quantize != "none" {
		roofs = append(roofs, "vnni")
	}
	return roofs
}

// promptOperations counts the multiplications and additions of matrix products for a prompt of n
// tokens: two per weight and token, but the head processes one token only. The second result is the
// number of bits of a stored weight.
func promptOperations(skeleton *meta.Model, n int) (operations float64, bits int) {
	bytes, err := dispatch.BytesPerToken(skeleton, "")
	if err != nil {
		return 0, 0
	}
	for _, p := range skeleton.Root.AllParams() {
		if len(p.Shape) >= 2 && bits == 0 {
			bits = p.DType.Bits()
		}
	}
	if bits == 0 {
		return 0, 0
	}
	all, head := float64(bytes)*8/float64(bits), 0.0
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok {
		if m := skeleton.Root.Find(spec.Head); m != nil && len(m.Params) > 0 {
			head = float64(meta.Elements(m.Params[0].Resolve().Shape))
		}
	}
	return 2 * ((all-head)*float64(n) + head), bits
}

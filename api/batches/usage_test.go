package batches

import (
	"net/http"
	"testing"
)

// TestBatchesSayModelAndUsage: batches had neither, as OpenAI's have them, whatever the endpoint calls its tokens, and
// also those of lines that an earlier process has answered.
func TestBatchesSayModelAndUsage(t *testing.T) {
	answers := completion(1, `{"model":"m","usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}}}`) +
		completion(2, `{"model":"m","usage":{"input_tokens":30,"output_tokens":20,"total_tokens":50,"input_tokens_details":{"cached_tokens":10},"output_tokens_details":{"reasoning_tokens":10}}}`) +
		completion(3, `{"model":"m","usage":{"prompt_tokens":300,"total_tokens":300}}`)
	want := usage{Input: 333, InputDetails: inputDetails{11}, Output: 22, OutDetails: outputDetails{11}, Total: 355}
	dir := t.TempDir()
	s := open(t, dir)
	b := Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}, MaxLine: 1 << 20, Parallel: 2}
	k := newBatch(t, s, answers)
	if v := k.view(); v.Model != nil || v.Usage != nil {
		t.Errorf("before it runs: %+v", v)
	}
	s.Begin(b)
	check := func(when string, got batch) {
		if got.Status != completed || got.Model == nil || *got.Model != "m" || got.Usage == nil || *got.Usage != want {
			t.Errorf("%s: %+v, usage %+v, want %+v", when, got, got.Usage, want)
		}
	}
	check("at once", s.wait(t, k))
	s.change(k, func(b *batch) { b.Status, b.Model, b.Usage = finalizing, nil, nil }) // as a killed process leaves it
	s.Stop()
	s = open(t, dir)
	s.Begin(b)
	check("after a restart", s.wait(t, s.batches[k.Batch.ID]))
	none := s.wait(t, newBatch(t, s, "{}\n"))
	if none.Status != failed || none.Model != nil || none.Usage != nil {
		t.Errorf("a batch without an answer: %+v", none)
	}
}

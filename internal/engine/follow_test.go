package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/sample"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// openNext binds the module for multi-token prediction of the checkpoint in dir.
func openNext(t *testing.T, dir string) *dispatch.Model {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	if skeleton, err = meta.NewNext(skeleton.Config, checkpoint); err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		dispatch.Options{Threads: 2, Variant: testenv.Variant(), KVTokens: 512})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestMultiTokenPredictionChangesNoAnswer: answers of a batch, greedy and sampled, of which some are preempted and
// some follow a cached prefix, are those without guesses, and the module guesses more than the text's repetitions tell.
func TestMultiTokenPredictionChangesNoAnswer(t *testing.T) {
	for _, name := range []string{"deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_next", "qwen3_5", "qwen3_5_moe", "mellum", "deepseek_v32"} {
		dir := golden.OwnMTP(t, name)
		t.Run(name, func(t *testing.T) {
			for _, room := range []int{64, 1024} { // tokens of the KV cache
				m, next := openModel(t, dir, room), openNext(t, dir)
				run := func(o engine.Options) (all []string, st engine.Stats) {
					o.MaxBatchTokens, o.ChunkTokens = 24, 5
					e := engine.New(engine.ForDispatch(m), o)
					defer e.Close()
					var streams []*engine.Stream
					for i := range 5 {
						r := engine.Request{Prompt: []int32{3, 1, 4, 1, 5, int32(9 + i), 2, 6}[:8-i%3], MaxTokens: 30, N: 1 + i%2}
						if i > 1 {
							r.Seed, r.Params = uint64(7+i), sample.Params{Temperature: 0.4 * float64(i-1), TopP: 0.95}
						}
						r.LogProbs = i == 3
						streams = append(streams, submit(t, e, r))
					}
					for i, s := range streams {
						got, err := collect(s, 1+i%2)
						if err != nil {
							t.Fatal(err)
						}
						for _, r := range got {
							all = append(all, fmt.Sprint(r.tokens))
						}
					}
					return all, counted(t, e)
				}
				want, _ := run(engine.Options{DraftTokens: -1})
				texts, fromText := run(engine.Options{DraftTokens: 4})
				var failed error
				got, st := run(engine.Options{DraftTokens: 4, Draft: engine.ForDispatch(next), DraftFailed: func(err error) { failed = err }})
				if failed != nil || !slices.Equal(got, want) || !slices.Equal(texts, want) {
					t.Errorf("room for %d: answers\n%v\nwant\n%v (%v)", room, got, want, failed)
				}
				if st.AcceptedTokens < fromText.AcceptedTokens+20 || st.AcceptedTokens == st.DraftTokens {
					t.Errorf("room for %d: %d of %d guesses were right, and %d of the text's own; want at least 20 more, and some wrong", room, st.AcceptedTokens, st.DraftTokens, fromText.AcceptedTokens)
				}
				if room == 64 && st.Preemptions == 0 {
					t.Error("nothing was preempted")
				}
				if used := next.KV().Used; used != 0 {
					t.Errorf("room for %d: %d pages of the module are still in use", room, used)
				}
			}
		})
	}
}

// followingModel says that a model of tokens takes hidden states, which it then lacks or is not given.
type followingModel struct{ *enginetest.Model }

func (followingModel) Joins() int { return 5 }

// A draft model that joins states that the model does not have is left, and answers are the same.
func TestADraftModelWithoutStatesToFollow(t *testing.T) {
	want, _ := answers(t, &enginetest.Model{MaxLen: 120, Width: 12, Mute: true}, engine.Options{DraftTokens: -1})
	var failed []error
	got, _ := answers(t, &enginetest.Model{MaxLen: 120, Width: 12, Mute: true}, engine.Options{DraftTokens: 4,
		Draft: followingModel{&enginetest.Model{MaxLen: 120, Width: 12}}, DraftFailed: func(err error) { failed = append(failed, err) }})
	if !slices.Equal(got, want) || len(failed) != 1 {
		t.Errorf("answers are the same: %v; failures: %v", slices.Equal(got, want), failed)
	}
}

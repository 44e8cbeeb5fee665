package engine_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/sample"
)

// TestModulesReadPromptsAndChangeNoAnswer: with modules that read prompts of several pages, in chunks, behind cached
// prefixes and preemptions, answers are those without guesses.
func TestModulesReadPromptsAndChangeNoAnswer(t *testing.T) {
	for _, name := range []string{"deepseek_v3", "deepseek_v32", "glm4_moe_lite", "qwen3_5_moe", "mellum"} {
		dir := golden.OwnMTP(t, name)
		t.Run(name, func(t *testing.T) {
			var requests []engine.Request
			for i := range 4 {
				r := engine.Request{Prompt: slices.Concat(prompt(3, 70), prompt(4+i, 40)), MaxTokens: 24, Seed: uint64(i)}
				if i > 1 {
					r.Params = sample.Params{Temperature: 0.5, TopP: 0.95}
				}
				requests = append(requests, r)
			}
			for _, room := range []int{288, 1024} { // tokens of the KV cache
				next := openNext(t, dir)
				run := func(o engine.Options) (all [][]int32, st engine.Stats) {
					o.MaxBatchTokens, o.ChunkTokens, o.DraftFailed = 60, 50, func(err error) { t.Error(err) }
					e := engine.New(engine.ForDispatch(openModel(t, dir, room)), o)
					defer e.Close()
					for range 2 { // the second time, prefixes are cached
						var streams []*engine.Stream
						for _, r := range requests {
							streams = append(streams, submit(t, e, r))
						}
						for _, s := range streams {
							got, err := collect(s, 1)
							if err != nil {
								t.Fatal(err)
							}
							all = append(all, got[0].tokens)
						}
					}
					return all, counted(t, e)
				}
				want, _ := run(engine.Options{DraftTokens: -1})
				preempts := room < 1000 && name != "mellum"
				got, st := run(engine.Options{DraftTokens: 4, Draft: engine.ForDispatch(next)})
				for range 20 { // on a busy machine requests may come one after the other
					if !preempts || st.Preemptions > 0 {
						break
					}
					got, st = run(engine.Options{DraftTokens: 4, Draft: engine.ForDispatch(next)})
				}
				if !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("room for %d: answers\n%v\nwant\n%v", room, got, want)
				}
				if kv := next.KV(); kv.Used != 0 || kv.PrefixHits < 150 || st.AcceptedTokens == 0 {
					t.Errorf("room for %d: %d pages of the module in use, %d tokens of its cache were used again, %d guesses right", room, kv.Used, kv.PrefixHits, st.AcceptedTokens)
				}
				if preempts && st.Preemptions == 0 {
					t.Error("nothing was preempted")
				}
			}
		})
	}
}

// statesOfOne is a model that returns one hidden state in a pass, so that a module sees no prompt.
type statesOfOne struct{ engine.Model }

func (m statesOfOne) Limits() engine.Limits {
	l := m.Model.Limits()
	l.States = 1
	return l
}

// TestModulesGuessFromPrompts: where only the prompt tells what comes next, a module that has read it is right nearly always,
// and one that has not is right half the time.
func TestModulesGuessFromPrompts(t *testing.T) {
	dir := golden.OwnMTP(t, "recall")
	var f struct {
		Prompts [][]int32 `json:"prompts"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "prompts.json"))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || len(f.Prompts) < 8 {
		t.Fatalf("%d prompts: %v", len(f.Prompts), err)
	}
	m := openModel(t, dir, 2048)
	right := func(model engine.Model, o engine.Options) (answers [][]int32, part float64) {
		o.MaxBatchTokens = 16 // chunks of prompts
		e := engine.New(model, o)
		defer e.Close()
		for _, p := range f.Prompts {
			got, err := collect(submit(t, e, engine.Request{Prompt: p, MaxTokens: 35}), 1)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, got[0].tokens)
		}
		st := counted(t, e)
		return answers, float64(st.AcceptedTokens) / float64(max(st.DraftTokens, 1))
	}
	want, _ := right(engine.ForDispatch(m), engine.Options{DraftTokens: -1})
	unread, without := right(statesOfOne{engine.ForDispatch(m)}, engine.Options{DraftTokens: 1, Draft: engine.ForDispatch(openNext(t, dir))})
	got, with := right(engine.ForDispatch(m), engine.Options{DraftTokens: 1, Draft: engine.ForDispatch(openNext(t, dir))})
	if !slices.EqualFunc(got, want, slices.Equal) || !slices.EqualFunc(unread, want, slices.Equal) {
		t.Errorf("answers\n%v and\n%v\nwant\n%v", got, unread, want)
	}
	t.Logf("guesses that were right: %.2f with the prompt, %.2f without", with, without)
	if with < 0.9 || without > 0.7 {
		t.Errorf("%.2f of the guesses were right with the prompt, %.2f without; want 0.9 at least and 0.7 at most", with, without)
	}
}

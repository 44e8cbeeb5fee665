package main

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine/holder"
)

// TestPlansOfDraftsSayWhatTheyCost: plan shows the memory of a model's draft of itself and the bytes that stream with
// and without it, and rejects a draft that causes more reads than its guesses are expected to save.
func TestPlansOfDraftsSayWhatTheyCost(t *testing.T) {
	config := maps.Clone(llamaConfig)
	maps.Copy(config, map[string]any{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
		"head_dim": 128, "vocab_size": 128256, "torch_dtype": "bfloat16", "max_position_embeddings": 2048})
	dir := writeConfig(t, config)
	for _, c := range []struct {
		memory string
		paid   bool
	}{{"cpu=8GiB", true}, {"cpu=17GiB", false}} {
		args := []string{"plan", "--no-probe", "--compress", "none", "--max-model-len", "2048", "--draft", "self", "--max-memory", c.memory, dir}
		var got struct {
			Predicted rates
			Self      *struct {
				Bytes  int64 `json:"bytes"`
				Beside int64 `json:"disk_bytes_per_token"`
				Alone  int64 `json:"disk_bytes_per_token_alone"`
			} `json:"self_draft"`
		}
		parse(t, &got, append(args, "--json")...)
		if got.Self == nil || got.Self.Bytes < 1<<30 || got.Self.Beside <= got.Self.Alone {
			t.Fatalf("%s: the draft is %+v", c.memory, got.Self)
		}
		want := got.Self.Alone // of the plan that is printed
		if c.paid {
			want = got.Self.Beside
		}
		if n := int64(*got.Predicted["disk_bytes_per_token"]); n != want {
			t.Errorf("%s: the plan streams %d bytes for a token, want %d of %+v", c.memory, n, want, *got.Self)
		}
		if text, _ := command(t, 0, args...); !strings.Contains(text, "draft self: ") || strings.Contains(text, "declines") == c.paid {
			t.Errorf("%s: declined, want %v:\n%s", c.memory, !c.paid, text)
		}
	}
}

// TestADraftThatSavesNoTimeIsClosed: a draft whose passes take twice as long as the model's saves nothing, whatever it guesses. It and
// its memory leave, and answers go on. What decides that are times of the test's, not the machine's.
func TestADraftThatSavesNoTimeIsClosed(t *testing.T) {
	var c runCmd
	c.Model, c.Draft, c.DraftTokens, c.placeFlags.DeviceMap, c.placeFlags.MaxMemory = []string{demoOnDisk(t)}, "self", "auto", "disk", "cpu=400MiB"
	s := fleetOf(t, c)
	l := s.fleet.loaded[0]
	engine, asked := holder.Engine(l.generator), 0
	engine.FixTimes(func(draft bool) time.Duration {
		if draft {
			asked++
			return 200 * time.Millisecond
		}
		return 100 * time.Millisecond
	})
	answer := func(n int) {
		t.Helper()
		if status, r := s.ask(t, "POST", "/v1/completions", fmt.Sprintf(`{"prompt": [1, 300], "max_tokens": %d, "seed": 1, "temperature": 2, "ignore_eos": true}`, n)); status != 200 {
			t.Fatalf("%d %v", status, r)
		}
	}
	answer(20)
	if s.fleet.drafts != l.drafter.bytes || asked == 0 {
		t.Fatalf("after 20 tokens the draft takes %d of %d bytes and has made %d passes", s.fleet.drafts, l.drafter.bytes, asked)
	}
	answer(60)
	before := asked
	answer(60)
	switch _, err := l.drafter.models[0].Forward(t.Context(), &dispatch.Batch{}); {
	case s.fleet.drafts != 0 || !errors.Is(err, dispatch.ErrClosed):
		t.Errorf("the draft takes %d bytes still, and its passes return %v", s.fleet.drafts, err)
	case asked != before:
		t.Errorf("%d passes of the draft after it has left", asked-before)
	}
}

// TestADraftTookTheModelsMinimum: beside a draft that leaves the model less than its minimum, the plan exceeded the limit, or with
// --strict-memory failed with a limit that was not the one given. The draft is declined, and the model alone keeps to the limit.
func TestADraftTookTheModelsMinimum(t *testing.T) {
	for _, strict := range []string{"--strict-memory=false", "--strict-memory"} {
		args := []string{"plan", demoOnDisk(t), "--no-probe", "--draft", "self", "--max-memory", "cpu=92MiB", strict}
		text, _ := command(t, 0, args...)
		if !strings.Contains(text, "less than its minimum, so auto declines it") || !strings.Contains(text, "cpu       92.0 MiB") || strings.Contains(text, "warning") {
			t.Errorf("%s:\n%s", strict, text)
		}
		p := start(t, "--model", demoOnDisk(t), "--draft", "self", "--max-memory", "cpu=92MiB", strict)
		_ = p.Process.Kill()
		<-p.end
		if log := fmt.Sprint(p.log); !strings.Contains(log, "so auto declines it") || strings.Contains(log, "below the minimum") {
			t.Errorf("serve %s:\n%s", strict, log)
		}
	}
}

// TestAPlanWithADraftNamedALimitForTheModelAlone: the limit with which all weights are said to fit in memory had no room for the
// draft, so that with it they did not.
func TestAPlanWithADraftNamedALimitForTheModelAlone(t *testing.T) {
	plan := func(memory string) string {
		text, _ := command(t, 0, "plan", demoOnDisk(t), "--no-probe", "--draft", "self", "--max-memory", "cpu="+memory)
		return text
	}
	_, limit, ok := strings.Cut(plan("99MiB"), "--max-memory cpu=")
	limit, _, _ = strings.Cut(limit, "\n")
	if text := plan(limit); !ok || strings.Contains(text, "fit in memory with") || strings.Contains(text, "declines") {
		t.Errorf("with %q:\n%s", limit, text)
	}
}

// TestAPlanIgnoredOtherDrafts: a plan with a draft model that it does not plan says so.
func TestAPlanIgnoredOtherDrafts(t *testing.T) {
	dir := demoOnDisk(t)
	for draft, warns := range map[string]bool{"self": false, "mtp": true, dir: true} {
		text, _ := command(t, 0, "plan", dir, "--no-probe", "--draft", draft)
		if strings.Contains(text, "warning: --draft "+draft+" is not planned") != warns {
			t.Errorf("%s: warns, want %v:\n%s", draft, warns, text)
		}
	}
}

// TestThePlanOfAServerHadNoDraft: GET /plan has the draft that a server uses, or declines, as serve plan has it.
func TestThePlanOfAServerHadNoDraft(t *testing.T) {
	for memory, declined := range map[string]bool{"92MiB": true, "99MiB": false} {
		dir := demoOnDisk(t)
		p := start(t, "--model", dir, "--draft", "self", "--max-memory", "cpu="+memory)
		_, plan := p.ask(t, "GET", "/plan", "")
		_ = p.Process.Kill()
		<-p.end
		var want struct {
			Self map[string]any `json:"self_draft"`
			Fits map[string]any `json:"fits_with"`
		}
		parse(t, &want, "plan", "--no-probe", "--json", "--draft", "self", "--max-memory", "cpu="+memory, dir)
		if got := plan["self_draft"]; want.Self == nil || !reflect.DeepEqual(got, any(want.Self)) || (want.Self["no_room"] == true) != declined {
			t.Errorf("%s: the server's draft is %v, that of serve plan %v", memory, got, want.Self)
		}
		if got, _ := plan["fits_with"].(map[string]any); fmt.Sprint(got["cpu_bytes"]) != fmt.Sprint(want.Fits["cpu_bytes"]) {
			t.Errorf("%s: all fits with %v, in serve plan %v", memory, got, want.Fits)
		}
	}
}

// TestAReloadedModelLostItsDraft: a model that was unloaded while it was idle came back without its draft, whose memory stayed reserved.
func TestAReloadedModelLostItsDraft(t *testing.T) {
	dir := demoOnDisk(t)
	for name, draft := range map[string]string{"self": "self", "model": dir} {
		t.Run(name, func(t *testing.T) {
			var c runCmd
			c.Model, c.Draft, c.DraftTokens = []string{dir}, draft, "4"
			s := fleetOf(t, c)
			f := s.fleet
			var bytes [3]int64
			for i := range bytes {
				if status, r := s.ask(t, "POST", "/v1/completions", `{"prompt": [1, 77, 300], "max_tokens": 4}`); status != 200 {
					t.Fatalf("%d %v", status, r)
				}
				if bytes[i] = f.drafts; len(f.loaded) != 1 || f.loaded[0].drafter == nil || bytes[i] == 0 || bytes[i] != bytes[0] {
					t.Fatalf("use %d: the draft takes %d bytes, at first %d", i, bytes[i], bytes[0])
				}
				if made, err := f.models.MakeRoom(t.Context(), true); !made || err != nil || f.others() != 0 {
					t.Fatalf("unloaded %v, %v; %d bytes are taken", made, err, f.others())
				}
			}
		})
	}
}

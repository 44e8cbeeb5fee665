package generate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
)

// longKeys is a schema whose documents are mostly certain.
const longKeys = `{"type":"object","properties":{"the capital of the country":{"enum":["one of the larger cities","nobody knows it"]},
	"how many layers the model has":{"type":"integer","minimum":1,"maximum":99},"what it remembers of the question":{"type":"string","maxLength":12}},
	"required":["the capital of the country","how many layers the model has","what it remembers of the question"],"additionalProperties":false}`

// TestForcedTokensOfARealModel: tokens and log-probabilities of constrained answers are bit for bit
// those of tokens that pass one at a time: in batches, with weights in memory and on disk, with little
// room for keys and values.
func TestForcedTokensOfARealModel(t *testing.T) {
	for _, c := range []struct {
		policy   string
		kvTokens int
	}{{"cpu", 4096}, {"disk", 4096}, {"cpu", 160}} {
		t.Run(fmt.Sprint(c.policy, c.kvTokens), func(t *testing.T) {
			var answers [2][]string
			for k, oneByOne := range []bool{false, true} {
				answers[k] = forcedAnswers(t, c.policy, c.kvTokens, oneByOne)
			}
			for i := range answers[0] {
				if answers[0][i] != answers[1][i] {
					t.Errorf("answer %d: together\n%s\none by one\n%s", i, answers[0][i], answers[1][i])
				}
			}
		})
	}
}

// forcedAnswers are answers of the demo model to some requests at once.
func forcedAnswers(t *testing.T, where string, kvTokens int, oneByOne bool) []string {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = checkpoint.Close() }()
	policy, err := devicemap.ParsePolicy(where)
	if err != nil {
		t.Fatal(err)
	}
	plan, options, err := dispatch.Plan(skeleton, dispatch.Options{DeviceMap: policy, Threads: 1, Context: 128, KVTokens: kvTokens})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := dispatch.New(skeleton, checkpoint, plan.Map, options)
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	m := generatetest.WithText(t, demo.Name)
	m.Config = skeleton.Config
	e := engine.New(engine.ForDispatch(bound), engine.Options{OneByOne: oneByOne, MaxBatch: 4})
	defer e.Close()
	holder.SetEngine(m, e)
	answers := make([]string, 6)
	var wait sync.WaitGroup
	for i := range answers {
		r := generate.Request{
			Prompt: encode(t, m, "What is the capital?"), MaxTokens: 90, Seed: uint64(i), LogProbs: i%2 == 0, TopLogProbs: i % 3,
			Constraint: &generate.Constraint{Schema: json.RawMessage(longKeys)}, Params: generate.Params{Temperature: float64(i % 3)},
		}
		wait.Go(func() {
			got, _ := readAll(t, m, r)
			for _, token := range got[0].tokens {
				answers[i] += fmt.Sprintf("%d %x", token.ID, token.LogProb)
				for _, top := range token.Top {
					answers[i] += fmt.Sprintf(" %v", top)
				}
				answers[i] += "\n"
			}
			answers[i] += got[0].text + string(got[0].finish)
		})
	}
	wait.Wait()
	if slices.Contains(answers, "") {
		t.Fatal("an answer is empty")
	}
	return answers
}

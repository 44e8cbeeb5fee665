package generate_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is all that one choice has gained.
type result struct {
	text   string
	pieces []string
	tokens []generate.Token
	prompt []generate.Token
	finish generate.Reason
}

func readAll(t *testing.T, m *generate.Model, r generate.Request) ([]result, generate.Usage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	run, err := m.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	out := make([]result, max(r.N, 1))
	for {
		d, err := run.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out, run.Usage()
		}
		if err != nil {
			t.Fatal(err)
		}
		c := &out[d.Choice]
		if c.finish != "" {
			t.Fatalf("choice %d goes on after its end: %+v", d.Choice, d)
		}
		c.text += d.Text
		if d.Text != "" {
			c.pieces = append(c.pieces, d.Text)
		}
		c.tokens = append(c.tokens, d.Tokens...)
		c.prompt = append(c.prompt, d.Prompt...)
		c.finish = d.Finish
	}
}

func encode(t *testing.T, m *generate.Model, text string) []int32 {
	t.Helper()
	ids, err := m.Encode(t.Context(), text, false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// saying is a model that answers a text.
func saying(t *testing.T, text string) (*generate.Model, []int32) {
	ids := encode(t, generatetest.WithText(t, ""), text)
	return generatetest.Saying(t, &enginetest.Model{}, ids, engine.Options{}), ids
}

func TestTextIsThatOfTheIDs(t *testing.T) {
	m, ids := saying(t, "Grüße, 世界! One boat on the river. 🚣")
	got, usage := readAll(t, m, generate.Request{Prompt: []int32{7, 8}, MaxTokens: len(ids)})
	if want := m.Tokenizer.Decode(ids, true); got[0].text != want {
		t.Errorf("text %q, want %q", got[0].text, want)
	}
	for _, p := range got[0].pieces {
		if strings.ContainsRune(p, '�') {
			t.Errorf("piece %q has half a character", p)
		}
	}
	if got[0].finish != generate.FinishLength || usage != (generate.Usage{Prompt: 2, Completion: len(ids)}) {
		t.Errorf("finish %q, usage %+v", got[0].finish, usage)
	}
}

func TestHalfACharacterComesAtTheEnd(t *testing.T) {
	m, ids := saying(t, "a🚣")
	got, _ := readAll(t, m, generate.Request{Prompt: []int32{7}, MaxTokens: len(ids) - 1})
	if want := m.Tokenizer.Decode(ids[:len(ids)-1], true); got[0].text != want || !strings.Contains(want, "�") {
		t.Errorf("text %q, want %q", got[0].text, want)
	}
}

func TestStopStringEndsWithItsToken(t *testing.T) {
	m, ids := saying(t, "one two three four five six seven")
	for _, c := range []struct {
		stop    []string
		include bool
		min     int
		want    string
	}{
		{[]string{"three"}, false, 0, "one two "},
		{[]string{"three"}, true, 0, "one two three"},
		{[]string{"seven", "four f"}, false, 0, "one two three "},
		{[]string{"two", "five"}, false, 8, "one two three four "},
	} {
		if c.min > 0 { // as many ids as have the first stop string in them
			c.min = len(encode(t, m, "one two three"))
		}
		got, usage := readAll(t, m, generate.Request{Prompt: []int32{7}, MaxTokens: len(ids), Stop: c.stop, IncludeStop: c.include,
			Params: generate.Params{MinTokens: c.min}})
		if got[0].text != c.want || got[0].finish != generate.FinishStop {
			t.Errorf("stop %q: text %q, finish %q; want %q", c.stop, got[0].text, got[0].finish, c.want)
		}
		if n := len(got[0].tokens); usage.Completion != n || n == 0 {
			t.Errorf("stop %q: usage %+v for %d tokens", c.stop, usage, n)
		}
		before := ids[:len(got[0].tokens)-1]
		if at := strings.Index(m.Tokenizer.Decode(before, true), c.stop[len(c.stop)-1]); at >= 0 {
			t.Errorf("stop %q: went on for a token too many", c.stop)
		}
	}
}

func TestEOSEndsAndIsNotShown(t *testing.T) {
	words := generatetest.WithText(t, "")
	hi := encode(t, words, "hi")
	eos, _ := words.Tokenizer.ID("<|end|>")
	script := append(slices.Clone(hi), eos, hi[0])
	m := generatetest.Saying(t, &enginetest.Model{}, script, engine.Options{})
	for _, c := range []struct {
		r      generate.Request
		text   string
		tokens int
		finish generate.Reason
	}{
		{generate.Request{}, "hi", len(hi) + 1, generate.FinishStop},
		{generate.Request{ShowSpecial: true}, "hi", len(hi) + 1, generate.FinishStop},
		{generate.Request{ShowSpecial: true, IncludeStop: true}, "hi<|end|>", len(hi) + 1, generate.FinishStop},
		{generate.Request{IgnoreEOS: true}, "hi" + words.Tokenizer.Decode(hi[:1], true), len(script), generate.FinishLength},
		{generate.Request{Params: generate.Params{Stop: hi[:1]}}, "", 1, generate.FinishStop},
	} {
		c.r.Prompt, c.r.MaxTokens = []int32{7}, len(script)
		got, _ := readAll(t, m, c.r)
		if got[0].text != c.text || len(got[0].tokens) != c.tokens || got[0].finish != c.finish {
			t.Errorf("%+v: %q, %d tokens, %q", c, got[0].text, len(got[0].tokens), got[0].finish)
		}
	}
}

// TestMergingOfEOSIsLinear: a generation_config.json of 300,000 ids is merged in one pass, not by
// comparing each with all before.
func TestMergingOfEOSIsLinear(t *testing.T) {
	g := &meta.GenerationConfig{}
	for i := range 600_000 {
		g.EOS = append(g.EOS, i/2)
	}
	m := &generate.Model{Text: generate.Text{Generation: g}}
	if got := m.EOS(); len(got) != 300_000 || got[7] != 7 {
		t.Errorf("%d ids", len(got))
	}
}

func TestEOSIsOfGenerationConfigFirst(t *testing.T) {
	m := generatetest.WithText(t, "")
	m.Config = &meta.Config{EOS: []int{3, 4}}
	if got := m.EOS(); !slices.Equal(got, []int32{5}) {
		t.Errorf("ids %v, want that of generation_config.json", got)
	}
	m.Generation = nil
	if got := m.EOS(); !slices.Equal(got, []int32{3, 4, 5}) {
		t.Errorf("ids %v, want those of config.json and the tokenizer's", got)
	}
}

func TestPromptIsScoredOnce(t *testing.T) {
	m, ids := saying(t, "one two")
	prompt := encode(t, m, "over there")
	got, _ := readAll(t, m, generate.Request{Prompt: prompt, MaxTokens: len(ids), N: 2, LogProbs: true, PromptLogProbs: true, TopLogProbs: 2, TopPrompt: 2})
	for i, c := range got {
		if len(c.prompt) != len(prompt) || len(c.tokens) != len(ids) {
			t.Fatalf("choice %d: %d and %d tokens", i, len(c.prompt), len(c.tokens))
		}
		for k, tok := range c.tokens {
			if tok.ID != ids[k] || len(tok.Top) != 2 || tok.Top[0].ID != tok.ID || tok.LogProb > 0 {
				t.Errorf("choice %d, token %d: %+v", i, k, tok)
			}
		}
		last := c.prompt[len(c.prompt)-1]
		if want := len("over there") - len(m.Tokenizer.Decode(prompt[len(prompt)-1:], true)); last.Offset != want {
			t.Errorf("choice %d: the prompt's last token begins at %d, want %d", i, last.Offset, want)
		}
	}
}

func TestPromptLogProbsWithoutCompletion(t *testing.T) {
	m, _ := saying(t, "one")
	got, usage := readAll(t, m, generate.Request{Prompt: []int32{7, 8, 9}, PromptLogProbs: true})
	if len(got[0].prompt) != 3 || len(got[0].tokens) != 0 || got[0].finish != generate.FinishLength || usage.Completion != 0 {
		t.Errorf("%+v, usage %+v", got[0], usage)
	}
}

func TestErrorsOfARequest(t *testing.T) {
	m, _ := saying(t, "one")
	mute := generatetest.Fake(t, &enginetest.Model{MaxLen: 10}, engine.Options{})
	for _, c := range []struct {
		name  string
		m     *generate.Model
		r     generate.Request
		kind  wire.Kind
		param string
	}{
		{"an empty prompt", m, generate.Request{Param: "prompt"}, wire.Invalid, "prompt"},
		{"an id too high", mute, generate.Request{Param: "prompt", Prompt: []int32{64}}, wire.Invalid, "prompt"},
		{"a prompt too long", mute, generate.Request{Param: "prompt", Prompt: make([]int32, 10), MaxTokens: -1}, wire.TooLong, "prompt"},
		{"an answer too long", mute, generate.Request{Param: "messages", Prompt: make([]int32, 5), MaxTokens: 6}, wire.TooLong, "messages"},
		{"stop strings without text", mute, generate.Request{Prompt: []int32{1}, Stop: []string{"a"}}, wire.Invalid, "stop"},
		{"too many likeliest", mute, generate.Request{Prompt: []int32{1}, TopLogProbs: 65}, wire.Invalid, "top_logprobs"},
	} {
		_, err := c.m.Start(context.Background(), c.r)
		var e *wire.Error
		if !errors.As(err, &e) || e.Kind != c.kind || e.Field != c.param || e.Message == "" {
			t.Errorf("%s: %#v", c.name, err)
		}
	}
	if _, err := mute.Start(context.Background(), generate.Request{Prompt: make([]int32, 5), MaxTokens: 6, Trim: true}); err != nil {
		t.Errorf("an answer that may be cut: %v", err)
	}
}

// TestSpaceAfterThePrompt: decoders drop a space at the beginning of a text, which is the
// prompt's beginning where the answer continues it.
func TestSpaceAfterThePrompt(t *testing.T) {
	m, _ := saying(t, "x")
	prompt, answer := encode(t, m, "one"), encode(t, m, " two")
	said := generatetest.Saying(t, &enginetest.Model{}, answer, engine.Options{})
	got, _ := readAll(t, said, generate.Request{Prompt: prompt, MaxTokens: len(answer), Continues: true})
	if got[0].text != " two" {
		t.Errorf("text %q", got[0].text)
	}
}

func TestRunsOfSeveralPrompts(t *testing.T) {
	m, ids := saying(t, "one two")
	requests := make([]generate.Request, 5)
	for i := range requests {
		requests[i] = generate.Request{Prompt: []int32{int32(i)}, MaxTokens: len(ids), N: 2}
	}
	runs, err := m.StartAll(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	var texts [10]string
	for {
		p, err := runs.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		texts[p.PromptIndex*2+p.Choice] += p.Text
	}
	for i, text := range texts {
		if text != "one two" {
			t.Errorf("choice %d: %q", i, text)
		}
	}
	if u := runs.Usage(); u.Prompt != 5 || u.Completion != 10*len(ids) {
		t.Errorf("usage %+v", u)
	}
}

func TestClosedRunsFreeTheirPlaces(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{Delay: time.Millisecond}, engine.Options{})
	runs, err := m.StartAll(t.Context(), []generate.Request{{Prompt: []int32{1}, MaxTokens: -1}, {Prompt: []int32{2}, MaxTokens: -1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runs.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs.Close()
	waitIdle(t, m)
	if _, err := m.StartAll(t.Context(), []generate.Request{{Prompt: []int32{1}, MaxTokens: -1}, {}}); err == nil {
		t.Error("an empty prompt among others was taken")
	}
	waitIdle(t, m)
}

func waitIdle(t *testing.T, m *generate.Model) {
	t.Helper()
	for range 1000 {
		if s := generatetest.Engine(m).Stats(); s.Running+s.Waiting+s.KV.Used == 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("still at work: %+v", generatetest.Engine(m).Stats())
}

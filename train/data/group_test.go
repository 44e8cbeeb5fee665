package data

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// bytewise has an id for each byte of a text.
type bytewise struct{}

func (bytewise) Encode(text string, special bool) (ids []int32, spans [][2]int, err error) {
	if special {
		ids, spans = append(ids, 1), append(spans, [2]int{})
	}
	for i, b := range []byte(text) {
		ids, spans = append(ids, int32(b)), append(spans, [2]int{i, i + 1})
	}
	return ids, spans, nil
}

func TestGroupsAreTokenised(t *testing.T) {
	r, err := parseGroup([]byte(`{"prompt": "ab", "completions": ["c", "defgh"], "rewards": [0.5, null], "answer": "c"}`))
	if err != nil {
		t.Fatal(err)
	}
	eos := int32(2)
	g, err := r.Tokenize(bytewise{}, nil, TextOptions{EOS: &eos, MaxLength: 7}, 9)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.Prompt, []int32{1, 'a', 'b'}) || !slices.Equal(g.Completions[0], []int32{'c', 2}) || !slices.Equal(g.Completions[1], []int32{'d', 'e', 'f', 'g'}) {
		t.Errorf("got %v and %v", g.Prompt, g.Completions)
	}
	if g.Rewards[0] != 0.5 || !math.IsNaN(g.Rewards[1]) || !strings.Contains(string(r.JSON), `"answer"`) {
		t.Errorf("got rewards %v of %s", g.Rewards, r.JSON)
	}
	if row := g.Row(0); !slices.Equal(row.Labels, []int32{IgnoreLabel, IgnoreLabel, IgnoreLabel, 'c', 2}) {
		t.Errorf("got labels %v", row.Labels)
	}
}

func TestGroupErrorsNamePlaces(t *testing.T) {
	for record, want := range map[string]string{
		`{"completions": ["a"], "rewards": [1]}`:                                                      "got no prompt",
		`{"prompt": "a", "completions": ["a"]}`:                                                       "got completions without rewards",
		`{"prompt": "a", "completions": ["a"], "rewards": [1, 2]}`:                                    "got 1 completions and 2 rewards",
		`{"prompt": "a", "completions": ["a"], "rewards": ["1"]}`:                                     "rewards[0]: got a string",
		`{"prompt": "a", "completions": [3], "rewards": [1]}`:                                         "completions[0]: got a number",
		`{"prompt": "a", "completions": "a", "rewards": [1]}`:                                         "completions: got a string, want a list",
		`{"prompt": "a", "completions": [], "rewards": []}`:                                           "got 0 completions and 0 rewards",
		`{"prompt": "a", "completions": ["a"], "rewards": [1e999]}`:                                   "rewards[0]: got 1e999",
		`{"prompt": "a", "completions": [[{"role": "assistant", "content": "b"}]], "rewards": [1]}`:   "got prompt as a string and completions[0] as messages",
		`{"prompt": [{"role": "user", "content": "b"}], "completions": [{"a": "b"}], "rewards": [1]}`: "completions[0]: got an object",
		`{"prompt": {"role": "user"}, "completions": ["a"], "rewards": [1]}`:                          "prompt: got an object",
		`{"prompt": "a", "completions": ["a"], "rewards": {"a": 1}}`:                                  "rewards.a: got a number, want a list",
	} {
		if _, err := parseGroup([]byte(record)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", record, err, want)
		}
	}
	r, err := parseGroup([]byte(`{"prompt": "abc"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tokenize(bytewise{}, nil, TextOptions{MaxLength: 4}, 9); err == nil || !strings.Contains(err.Error(), "the prompt has 4 tokens, want less than 4") {
		t.Errorf("got %v", err)
	}
}

package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func comparisons(t *testing.T, lines ...string) *Comparisons {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenComparisons(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestComparisonRecordsFindThePrompt(t *testing.T) {
	d := comparisons(t,
		`{"prompt": "a?", "chosen": " b", "rejected": " c"}`,
		`{"chosen": "a? b", "rejected": "a? c", "prompt": null}`,
		`{"chosen": "ab", "rejected": "abc"}`,
		`{"chosen": "b", "rejected": "c"}`,
		`{"chosen": "aä", "rejected": "aö"}`, // which share a byte
	)
	for i, want := range [][3]string{{"a?", " b", " c"}, {"a?", " b", " c"}, {"a", "b", "bc"}, {"", "b", "c"}, {"a", "ä", "ö"}} {
		r, err := d.At(i)
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]string{r.Prompt.Text, r.Completions[0].Text, r.Completions[1].Text}; got != want {
			t.Errorf("record %d: got %q, want %q", i, got, want)
		}
	}
}

func TestComparisonRecordsOfMessagesFindThePrompt(t *testing.T) {
	d := comparisons(t, `{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], `+
		`"rejected": [{"content": "a", "role": "user"}, {"role": "assistant", "content": "c"}]}`)
	r, err := d.At(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Prompt.Messages) != 1 || len(r.Completions[0].Messages) != 1 || !sameJSON(r.Completions[1].Messages[0], json.RawMessage(`{"role": "assistant", "content": "c"}`)) {
		t.Errorf("got %s", r.Completions[1].Messages)
	}
}

func TestComparisonRecordsNameWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		`{"prompt": "a", "chosen": "b"}`:                                        "want chosen and rejected",
		`{"prompt": 3, "chosen": "b", "rejected": "c"}`:                         "line 1: prompt: got a number, want a string or a list of messages",
		`{"prompt": [{"role": "user"}], "chosen": "b", "rejected": "c"}`:        "prompt as messages and chosen as a string",
		`{"chosen": [{"role": "assistant"}], "rejected": "c"}`:                  "chosen as messages and rejected as a string",
		`{"chosen": [{"role": "a"}], "rejected": [{"role": "b"}]}`:              "begin with different messages",
		`{"prompt": "a", "chosen": [], "rejected": [{"role": "assistant"}]}`:    "chosen: got an empty list",
		`{"prompt": "a", "chosen": ["b"], "rejected": [{"role": "assistant"}]}`: "chosen[0]: got a string, want an object",
	} {
		if _, err := comparisons(t, line).At(0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", line, err, want)
		}
	}
}

// byRune is an encoder of one id a character.
type byRune struct{}

func (byRune) Encode(s string, _ bool) (ids []int32, spans [][2]int, err error) {
	for i, r := range []rune(s) {
		ids, spans = append(ids, r), append(spans, [2]int{i, i + 1})
	}
	return ids, spans, nil
}

func TestComparisonsAreCutAndPadded(t *testing.T) {
	end := int32('.')
	record := func(p, c, r string) ComparisonRecord {
		return ComparisonRecord{Prompt: Passage{Text: p}, Completions: []Passage{{Text: c}, {Text: r}}}
	}
	long, err := record("ab", "cdefg", "h").Tokenize(byRune{}, nil, TextOptions{EOS: &end, MaxLength: 5})
	if err != nil {
		t.Fatal(err)
	}
	short, err := record("a", "b.", "c").Tokenize(byRune{}, nil, TextOptions{EOS: &end})
	if err != nil {
		t.Fatal(err)
	}
	b, err := PadComparisons(Padding{ID: '_'})([]Comparison{long, short})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b.IDs); got != "abcde"+"ab.__"+"abh._"+"ac.__" || b.Prompts != 2 || b.Rows != 4 {
		t.Errorf("got ids %q of %d rows and %d prompts", got, b.Rows, b.Prompts)
	}
	x := IgnoreLabel
	if want := []int32{x, x, 'c', 'd', 'e', x, 'b', '.', x, x, x, x, 'h', '.', x, x, 'c', '.', x, x}; !slices.Equal(b.Labels, want) {
		t.Errorf("got labels %v, want %v", b.Labels, want)
	}
	if _, err := record("abcde", "f", "g").Tokenize(byRune{}, nil, TextOptions{MaxLength: 5}); err == nil || !strings.Contains(err.Error(), "the prompt has 5 tokens, want less than 5") {
		t.Errorf("got error %v for a prompt without room", err)
	}
}

// TestMismatchedAnswersWereCutWithTheirOwnPrompt: an answer after a long prompt lost the tokens that a shorter prompt
// has room for in kto's mismatched rows, so that kl differed from TRL's.
func TestMismatchedAnswersWereCutWithTheirOwnPrompt(t *testing.T) {
	var samples []Comparison
	for _, text := range [][2]string{{"abc", "defgh"}, {"p", "q"}} {
		r := ComparisonRecord{Prompt: Passage{Text: text[0]}, Completions: []Passage{{Text: text[1]}}}
		c, err := r.Tokenize(byRune{}, nil, TextOptions{MaxLength: 4, Judged: true})
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, c)
	}
	b, err := PadJudged(Padding{ID: '_'}, 4)(samples)
	if err != nil {
		t.Fatal(err)
	}
	if own, mismatched := string(b.IDs), string(b.Mismatched.IDs); own != "abcd"+"pq__" || mismatched != "abcq"+"pdef" {
		t.Errorf("got rows %q and mismatched rows %q, want abcd, pq and abcq, pdef", own, mismatched)
	}
}

// TestAPromptThatRepeatsAMessageWasAMistake: preference data such as ultrafeedback_binarized has the prompt as a text
// next to conversations that begin with it. As in TRL, the conversations count.
func TestAPromptThatRepeatsAMessageWasAMistake(t *testing.T) {
	r, err := parseComparison([]byte(`{"prompt":"q","prompt_id":"x","score_chosen":9,
		"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
		"rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}],
		"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`))
	if err != nil || len(r.Prompt.Messages) != 1 || len(r.Completions) != 2 || len(r.Completions[0].Messages) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := parseComparison([]byte(`{"prompt":[{"role":"user","content":"q"}],"chosen":"a","rejected":"b"}`)); err == nil {
		t.Error("messages as the prompt of texts: want an error")
	}
}

// TestQuestionsWereLeftOut: orca_dpo_pairs has its prompts as question, and answers were learned without them. ShareGPT's pairs
// of LLaMA-Factory were skipped.
func TestQuestionsWereLeftOut(t *testing.T) {
	for _, key := range []string{"question", "instruction", "query", "input"} {
		_, err := parseComparison([]byte(`{"` + key + `":"q","chosen":"a","rejected":"b"}`))
		if want := "got " + key + " without prompt"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, record := range []string{`{"prompt":"q","question":"x","chosen":"a","rejected":"b"}`, `{"input":"x","chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
		"rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}]}`} {
		if _, err := parseComparison([]byte(record)); err != nil {
			t.Errorf("%s: %v", record, err)
		}
	}
	r, err := parseComparison([]byte(`{"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"},"rejected":{"from":"gpt","value":"b"}}`))
	if err != nil || len(r.Prompt.Messages) != 1 || string(r.Completions[1].Messages[0]) != `{"role":"assistant","content":"b"}` {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := parseComparison([]byte(`{"conversations":[{"from":"human","value":"q"}],"chosen":"a","rejected":"b"}`)); err == nil {
		t.Error("texts after a conversation: want an error")
	}
}

package foreign_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/messages"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// update writes the tables into docs/parameters.md.
var update = flag.Bool("update", false, "write the tables into docs/parameters.md")

// An endpointCase is how a test asks an endpoint.
type endpointCase struct {
	on     foreign.Endpoints
	name   string
	serve  http.HandlerFunc
	fields string // that every request has
	// reads are the fields that the endpoint reads, each with a value that it rejects.
	reads map[string]string
}

// budgets are the names of a budget of reasoning.
const budgets = "thinking_token_budget thinking_budget_tokens thinking_budget reasoning_budget reasoning_budget_tokens max_thinking_tokens"

func endpointCases(t *testing.T) []endpointCase {
	models := generate.NewModels(generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	s := openai.New(models)
	common := map[string]string{}
	for _, name := range strings.Fields("model max_tokens min_tokens temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty n best_of seed stop logit_bias " +
		"stop_token_ids allowed_token_ids ignore_eos include_stop_str_in_output return_token_ids skip_special_tokens stream stream_options logprobs response_format add_special_tokens bad_words truncate_prompt_tokens return_tokens_as_token_ids prompt_logprobs") {
		common[name] = `[{"no": 1}]`
	}
	with := func(base map[string]string, more string) map[string]string {
		all := map[string]string{}
		for name, value := range base {
			all[name] = value
		}
		for _, name := range strings.Fields(more) {
			all[name] = `[["no"]]`
		}
		return all
	}
	chat := with(common, budgets+" reasoning thinking enable_thinking max_completion_tokens top_logprobs include_reasoning parallel_tool_calls messages tools tool_choice chat_template_kwargs reasoning_effort "+
		"add_generation_prompt continue_final_message")
	chat["documents"] = `"no"`
	answers := map[string]string{}
	for _, name := range strings.Fields("model input instructions previous_response_id max_output_tokens max_tool_calls metadata parallel_tool_calls tools tool_choice text reasoning " + budgets + " " +
		"include top_logprobs truncation store stream stream_options safety_identifier prompt_cache_key user chat_template_kwargs " +
		"min_tokens temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty seed stop logit_bias stop_token_ids allowed_token_ids ignore_eos include_stop_str_in_output skip_special_tokens bad_words") {
		answers[name] = `[["no"]]`
	}
	asked := map[string]string{}
	for _, name := range strings.Fields("model messages system max_tokens stop_sequences stream thinking tools tool_choice output_config output_format chat_template_kwargs " +
		"min_tokens temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty seed stop logit_bias stop_token_ids allowed_token_ids ignore_eos include_stop_str_in_output skip_special_tokens bad_words") {
		asked[name] = `[["no"]]`
	}
	return []endpointCase{
		{foreign.Completions, "/v1/completions", s.Completions, `"prompt": "a", "max_tokens": 2, "seed": 1`, with(common, "echo prompt "+budgets)},
		{foreign.Chat, "/v1/chat/completions", s.ChatCompletions, `"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "seed": 1`,
			chat},
		{foreign.Embeddings, "/v1/embeddings", s.Embeddings, `"input": "a"`, with(nil, "model input encoding_format dimensions add_special_tokens truncate_prompt_tokens")},
		{foreign.Tokenize, "/tokenize", s.Tokenize, `"prompt": "a"`, with(nil, "model prompt add_special_tokens return_token_strs truncate_prompt_tokens")},
		{foreign.Detokenize, "/detokenize", s.Detokenize, `"tokens": [1]`, with(nil, "model tokens")},
		{foreign.Template, "/apply-template", s.ApplyTemplate, `"messages": [{"role": "user", "content": "a"}]`,
			with(nil, "model messages tools tool_choice chat_template_kwargs reasoning_effort add_generation_prompt continue_final_message")},
		{foreign.Messages, "/v1/messages", messages.New(models).Create, `"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "seed": 1`, asked},
		{foreign.Responses, "/v1/responses", responses.New(models, store.NewMemory(1<<20, nil)).Create, `"input": "a", "max_output_tokens": 2, "seed": 1`, answers},
	}
}

// varies has the fields that differ between equal answers: names, times and cached tokens.
var varies = regexp.MustCompile(`"(id|created|created_at|completed_at)":("[^"]*"|\d+)|"(prompt|input)_tokens_details":\{[^}]*\}`)

// ask sends a body with further fields, which replace the usual ones. It returns the status, the
// field at fault and the answer without what differs from one answer to the next.
func (c *endpointCase) ask(t *testing.T, more string) (status int, param, answer string) {
	t.Helper()
	var usual, fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte("{"+c.fields+"}"), &usual); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte("{"+more+"}"), &fields); err != nil {
		t.Fatal(more, err)
	}
	for name, value := range fields {
		usual[name] = value
	}
	body, err := json.Marshal(usual)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	c.serve(w, httptest.NewRequest("POST", c.name, bytes.NewReader(body)))
	var failed struct {
		Error struct{ Param, Message string }
	}
	_ = json.Unmarshal(w.Body.Bytes(), &failed)
	if c.on == foreign.Messages && w.Code != http.StatusOK { // the message names the field
		_, rest, _ := strings.Cut(failed.Error.Message, "'")
		failed.Error.Param, _, _ = strings.Cut(rest, "'")
	}
	return w.Code, failed.Error.Param, varies.ReplaceAllString(w.Body.String(), "")
}

// probes are values that no row regards as switched off, unless it lists them.
var probes = []string{`"probe"`, `["probe"]`, `{"probe":1}`, `7.25`, `true`, `false`}

// TestEveryForeignParameterThatChangesTheAnswerIsA400: add_bos_token, presence_penalty_range, n_keep,
// prediction, messages of a completion and others were ignored with a 200.
func TestEveryForeignParameterThatChangesTheAnswerIsA400(t *testing.T) {
	for _, c := range endpointCases(t) {
		for _, u := range foreign.UnsupportedIn[c.on] {
			off := u.Off
			if off == nil {
				off = []string{"false", `""`, "[]", "{}"}
			}
			for _, value := range probes {
				if slices.Contains(off, value) {
					continue
				}
				status, param, answer := c.ask(t, fmt.Sprintf("%q: %s", u.Field, value))
				if status != 400 || param != u.Field || !strings.Contains(answer, u.Reason) {
					t.Errorf("%s with %s %s: got %d, %.200s", c.name, u.Field, value, status, answer)
				}
			}
			for _, value := range append([]string{"null"}, off...) {
				if status, _, answer := c.ask(t, fmt.Sprintf("%q: %s", u.Field, value)); status != 200 {
					t.Errorf("%s with %s %s: got %d, %.200s", c.name, u.Field, value, status, answer)
				}
			}
		}
	}
}

// TestIgnoredParametersChangeNoAnswer: a field of the table of no-ops may have any value.
func TestIgnoredParametersChangeNoAnswer(t *testing.T) {
	for _, c := range endpointCases(t) {
		status, _, want := c.ask(t, "")
		if status != 200 {
			t.Fatalf("%s: %d, %s", c.name, status, want)
		}
		for _, row := range foreign.Ignored {
			if row.On&c.on == 0 {
				continue
			}
			for _, name := range strings.Fields(row.Names) {
				for _, value := range probes {
					if status, _, got := c.ask(t, fmt.Sprintf("%q: %s", name, value)); status != 200 || got != want {
						t.Errorf("%s with %s %s: got %d, %.200s; want %.200s", c.name, name, value, status, got, want)
					}
				}
			}
		}
	}
}

// TestParametersAreInOneTable: a field is read, unsupported or ignored by an endpoint, and only one
// of these.
func TestParametersAreInOneTable(t *testing.T) {
	for _, c := range endpointCases(t) {
		where := map[string]string{}
		put := func(name, table string) {
			if other, there := where[name]; there {
				t.Errorf("%s: %s is in the tables of %s and %s fields", c.name, name, other, table)
			}
			where[name] = table
		}
		for name, wrong := range c.reads {
			put(name, "read")
			if status, param, answer := c.ask(t, fmt.Sprintf("%q: %s", name, wrong)); status != 400 || param != name && !strings.HasPrefix(param, name) {
				t.Errorf("%s does not read %s: %d, %.200s", c.name, name, status, answer)
			}
		}
		for _, u := range foreign.UnsupportedIn[c.on] {
			put(u.Field, "unsupported")
		}
		for _, row := range foreign.Ignored {
			for _, name := range strings.Fields(row.Names) {
				if row.On&c.on != 0 {
					put(name, "ignored")
				}
			}
		}
	}
	for _, row := range append(slices.Clone(foreign.Unsupported), foreign.Ignored...) {
		if row.On == 0 || row.Names == "" || row.Known == "" || !strings.HasSuffix(row.Why, ".") {
			t.Errorf("a row without Endpoints, names, servers or a reason that is a sentence: %+v", row)
		}
	}
}

// TestTheTablesOfParametersAreDocumented compares docs/parameters.md with the tables. -update writes it.
func TestTheTablesOfParametersAreDocumented(t *testing.T) {
	const begin, end = "<!-- tables of parameters: go test ./api/internal/foreign -run Documented -update -->\n", "<!-- end of the tables -->\n"
	path := filepath.Join("..", "..", "..", "docs", "parameters.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	got, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the tables", path)
	}
	want := tableText("rejected", foreign.Unsupported) + "\n" + tableText("ignored", foreign.Ignored)
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not equal to the tables in the code: run go test ./api/internal/foreign -run Documented -update", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tableText is a table in Markdown.
func tableText(title string, rows []foreign.Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | servers | endpoints | reason |\n|---|---|---|---|\n", title)
	for _, row := range merged(rows) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", strings.Join(strings.Fields(row.Names), "`, `"), row.Known, row.On, row.Why)
	}
	return b.String()
}

// merged joins the rows that have their endpoints and their reason in common, in the order of the first of each.
func merged(rows []foreign.Row) []foreign.Row {
	type key struct {
		on  foreign.Endpoints
		why string
	}
	var list []foreign.Row
	at := map[key]int{}
	for _, row := range rows {
		i, seen := at[key{row.On, row.Why}]
		if !seen {
			at[key{row.On, row.Why}] = len(list)
			list = append(list, row)
			continue
		}
		list[i].Names += " " + row.Names
		for _, server := range strings.Split(row.Known, ", ") {
			if !slices.Contains(strings.Split(list[i].Known, ", "), server) {
				list[i].Known += ", " + server
			}
		}
	}
	return list
}

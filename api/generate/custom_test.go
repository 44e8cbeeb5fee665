package generate

import (
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// patchGrammar has line breaks, quotes and backslashes in its texts, and what looks like markup.
const patchGrammar = "start: \"*** Begin\" LF line+ \"*** End\"\nline: (\"+\" | \"-\") /[a-c\"\\\\<>:{]{1,4}/ LF\n%import common.LF\n"

var patchText = regexp.MustCompile(`^\*\*\* Begin\n([+-][a-c"\\<>:{]{1,4}\n)+\*\*\* End$`)

// TestCustomToolsInEveryNotation: the output of a random model in a notation is read back as a call whose text
// matches the grammar of the tool, whole and byte by byte.
func TestCustomToolsInEveryNotation(t *testing.T) {
	paths, err := filepath.Glob("../../internal/chat/toolcall/testdata/unseen/*.jinja")
	if err != nil || len(paths) < 85 {
		t.Fatalf("%d templates, %v", len(paths), err)
	}
	for i, path := range paths {
		if testing.Short() && i%8 != 0 {
			continue
		}
		template, err := golden.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".jinja"), func(t *testing.T) { checkCustomCalls(t, templateModel(t, template, true)) })
	}
}

// nestedGrammar has texts with brackets in brackets, line breaks and quotes, which no regular expression matches.
const nestedGrammar = "start: \"(\" (start LF)* \")\" | /[a-c\"\\\\]{1,2}/\n%import common.LF\n"

// nestedText reports whether a text matches nestedGrammar.
func nestedText(text string) bool {
	inner := regexp.MustCompile(`\((([a-c"\\]{1,2}|o)\n)*\)`)
	for {
		shorter := inner.ReplaceAllString(text, "o")
		if shorter == text {
			return regexp.MustCompile(`^(o|[a-c"\\]{1,2})$`).MatchString(text)
		}
		text = shorter
	}
}

func checkCustomCalls(t *testing.T, m *Model) {
	t.Helper()
	checkCustomTexts(t, m, patchGrammar, patchText.MatchString)
	n, _ := m.Chat.CallNotation()
	if n.Arguments == nil {
		checkCustomTexts(t, m, nestedGrammar, nestedText)
		return
	}
	if _, err := forcedCustom(t, m, nestedGrammar); err == nil || !strings.Contains(err.Error(), "'definition'") || !strings.Contains(err.Error(), "only arguments in JSON") {
		t.Errorf("got %v, want an error of nesting", err)
	}
}

// forcedCustom is a request that must call a custom tool.
func forcedCustom(t *testing.T, m *Model, definition string) (*Request, error) {
	t.Helper()
	c := forcedCalls(ToolsRequired, "patch", true, false)
	if err := c.CustomTool(Custom{Name: "patch", Description: "d", Syntax: "lark", Definition: definition, Field: "definition"}); err != nil {
		t.Fatal(err)
	}
	r := &Request{}
	if err := m.Converse(t.Context(), c, r); err != nil {
		t.Fatal(err)
	}
	return r, m.Constrain(t.Context(), r)
}

func checkCustomTexts(t *testing.T, m *Model, definition string, matches func(string) bool) {
	t.Helper()
	r, err := forcedCustom(t, m, definition)
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for seed := range uint64(4) {
		answer, over := randomAnswer(t, m, r, rand.New(rand.NewPCG(seed, 5)))
		if !over {
			continue
		}
		ended++
		calls := m.Chat.Parse(answer, *r.Parse).ToolCalls
		if len(calls) != 1 || calls[0].Name != "patch" {
			t.Fatalf("calls %v in %q", calls, answer)
		}
		whole, pieces := inputReader{}, inputReader{}
		input, joined := whole.read(calls[0].Arguments)+whole.end(), ""
		for i := range len(calls[0].Arguments) {
			joined += pieces.read(calls[0].Arguments[i : i+1])
		}
		if joined += pieces.end(); !matches(input) || joined != input {
			t.Fatalf("got %q and in pieces %q of %q", input, joined, answer)
		}
	}
	if ended == 0 {
		t.Error("no answer ended")
	}
}

// TestCustomToolInputsAreUnescapedInPieces: escapes in pieces, pairs of surrogates and halves of them.
func TestCustomToolInputsAreUnescapedInPieces(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"input": "a\"\\\/\b\f\n\r\tb"}`:              "a\"\\/\b\f\n\r\tb",
		` { "input" :"\u00e9\uD83D\ude42é🙂" , "x": 1}`: "é🙂é🙂",
		`{"input": "\ud83dx\ud83d\u0041\ude42"}`:       "\uFFFDx\uFFFDA\uFFFD",
		`{"input": "a"} {"input": "b"}`:                "a",
		`{"input": ["a"]}`:                             `{"input": ["a"]}`,
		`plain`:                                        "plain",
		``:                                             "",
		`{"input": "cut \ud83d`:                        "cut ",
	} {
		for _, step := range []int{1, 2, 7, 100} {
			var r inputReader
			got := ""
			for rest := arguments; rest != ""; {
				n := min(step, len(rest))
				got, rest = got+r.read(rest[:n]), rest[n:]
			}
			if got += r.end(); got != want {
				t.Errorf("%s in steps of %d: got %q, want %q", arguments, step, got, want)
			}
		}
	}
}

// FuzzInputReader: it reads what encoding/json does, whatever the pieces.
func FuzzInputReader(f *testing.F) {
	f.Add("a\"\\世\n\x01", 3)
	f.Fuzz(func(t *testing.T, input string, step int) {
		arguments := CustomArguments(input)
		var want struct{ Input string }
		if err := json.Unmarshal([]byte(arguments), &want); err != nil {
			t.Fatal(err)
		}
		var r inputReader
		got := ""
		for rest := arguments; rest != ""; {
			n := min(max(step, 1), len(rest))
			got, rest = got+r.read(rest[:n]), rest[n:]
		}
		if got += r.end(); got != want.Input {
			t.Errorf("got %q, want %q", got, want.Input)
		}
	})
}

package chat

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/golden"
)

// fixture is a file of cases: renderings of one template by the reference.
type fixture struct {
	template string
	special  map[string]string
	now      time.Time
	cases    []*Dict
}

func TestGoldenTemplates(t *testing.T) {
	n := 0
	for _, file := range golden.Glob(t, "text/templates/cases/*.json") {
		f := readFixture(t, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			template, parseErr := Parse(f.template)
			for _, c := range f.cases {
				n++
				t.Run(textOf(c, "conversation"), func(t *testing.T) {
					checkCase(t, template, parseErr, f, c)
				})
			}
		})
	}
	golden.Count(t, "text/templates", n)
}

// TestGoldenChatPrompts checks the prompts of the end-to-end fixture; the ids need
// a tokenizer and are checked where both are used.
func TestGoldenChatPrompts(t *testing.T) {
	n := 0
	path := golden.Path(t, "text", "templates", "chat_ids.json")
	if data, err := golden.Read(path); err == nil {
		root := decodeDict(t, path, data)
		cases, _ := root.Get("cases")
		for _, v := range cases.(*List).Items {
			c := v.(*Dict)
			n++
			f := &fixture{
				template: readTemplate(t, textOf(c, "template_file")),
				special:  tokenizerTokens(t, textOf(c, "tokenizer")),
				now:      parseNow(t, textOf(root, "now")),
			}
			t.Run(textOf(c, "tokenizer")+"/"+textOf(c, "conversation"), func(t *testing.T) {
				template, err := Parse(f.template)
				prompt, _ := c.Get("prompt")
				expected := c.Clone()
				expected.Set("expected", prompt)
				checkCase(t, template, err, f, expected)
			})
		}
	}
	golden.Count(t, "text/templates/chat_ids (prompts)", n)
}

// checkCase renders c and compares with the reference's result: the text,
// the message of raise_exception, or else the mere fact of failing.
func checkCase(t *testing.T, template *Template, parseErr error, f *fixture, c *Dict) {
	t.Helper()
	got, err := "", parseErr
	if parseErr == nil {
		var r Request
		if r, err = f.request(c); err == nil {
			got, err = template.Render(r)
		}
	}
	want, _ := c.Get("expected")
	if want != nil {
		if err != nil {
			t.Fatalf("want a prompt, got error: %v", err)
		}
		if got != want {
			t.Fatalf("wrong prompt\n%s", difference(got, want.(string)))
		}
		return
	}
	wantErr, _ := c.Get("error")
	if err == nil {
		t.Fatalf("want error %s, got %q", textOf(wantErr.(*Dict), "message"), got)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is no *Error: %v", err)
	}
	if kind := textOf(wantErr.(*Dict), "kind"); kind == string(KindRaise) {
		if e.Kind != KindRaise || e.Message != textOf(wantErr.(*Dict), "message") {
			t.Fatalf("want raise_exception %q, got %s %q", textOf(wantErr.(*Dict), "message"), e.Kind, e.Message)
		}
	}
}

// request is the case as a server would ask for it.
func (f *fixture) request(c *Dict) (Request, error) {
	r := Request{SpecialTokens: f.special, Now: f.now}
	if v, _ := c.Get("messages"); v != nil {
		r.Messages = v.(*List).Items
	}
	r.Tools, _ = c.Get("tools")
	kwargs, _ := c.Get("kwargs")
	d, _ := kwargs.(*Dict)
	return r, r.SetKwargs(d)
}

func readFixture(t *testing.T, file string) *fixture {
	t.Helper()
	data, err := golden.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	root := decodeDict(t, file, data)
	f := &fixture{
		template: readTemplate(t, textOf(root, "template_file")),
		now:      parseNow(t, textOf(root, "now")),
		special:  map[string]string{},
	}
	if special, _ := root.Get("special_tokens"); special != nil {
		for name, v := range special.(*Dict).All() {
			if s, ok := v.(string); ok {
				f.special[name] = s
			}
		}
	}
	cases, _ := root.Get("cases")
	for _, c := range cases.(*List).Items {
		f.cases = append(f.cases, c.(*Dict))
	}
	return f
}

func readTemplate(t *testing.T, name string) string {
	t.Helper()
	data, err := golden.Read(golden.Path(t, "text", "templates", "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tokenizerTokens are the special tokens of a tokenizer's configuration.
func tokenizerTokens(t *testing.T, name string) map[string]string {
	t.Helper()
	path := golden.Path(t, "text", "tokenizers", name, "tokenizer_config.json")
	data, err := golden.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	special := map[string]string{}
	for key, v := range decodeDict(t, path, data).All() {
		if !strings.HasSuffix(key, "_token") {
			continue
		}
		if d, ok := v.(*Dict); ok {
			v, _ = d.Get("content")
		}
		if s, ok := v.(string); ok {
			special[key] = s
		}
	}
	return special
}

func parseNow(t *testing.T, s string) time.Time {
	t.Helper()
	now, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func decodeDict(t *testing.T, path string, data []byte) *Dict {
	t.Helper()
	v, err := Decode(data)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v.(*Dict)
}

func textOf(d *Dict, key string) string {
	v, _ := d.Get(key)
	s, _ := v.(string)
	return s
}

// difference shows where two texts part.
func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	around := func(s string) string {
		return s[max(0, i-60):min(len(s), i+120)]
	}
	return "got  …" + around(got) + "\nwant …" + around(want)
}

package chat

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
)

func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name          string
		files         map[string]string
		plain, tooled string // the templates found without and with tools, or an error
		tokens        string
	}{
		{name: "nothing", plain: "no chat template", tooled: "no chat template", tokens: "map[]"},
		{name: "configuration",
			files: map[string]string{"tokenizer_config.json": `{"bos_token":"<s>","eos_token":{"content":"</s>","special":true},"pad_token":null,"add_bos_token":true,"chat_template":"A"}`},
			plain: "A", tooled: "A",
			tokens: "map[bos_token:<s> eos_token:</s>]"},
		{name: "named templates",
			files:  map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]}`},
			plain:  "A",
			tooled: "B",
			tokens: "map[]"},
		{name: "no default",
			files:  map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"rag","template":"A"}]}`},
			plain:  "no default: rag",
			tooled: "no default: rag",
			tokens: "map[]"},
		{name: "a file of its own wins",
			files: map[string]string{"chat_template.jinja": "C", "tokenizer_config.json": `{"chat_template":"A","extra_special_tokens":{"image_token":"<i>"}}`,
				"special_tokens_map.json": `{"image_token":"<other>","unk_token":"<u>"}`},
			plain:  "C",
			tooled: "C",
			tokens: "map[image_token:<i> unk_token:<u>]"},
		{name: "files of their own",
			files:  map[string]string{"chat_template.jinja": "C", "additional_chat_templates/tool_use.jinja": "D"},
			plain:  "C",
			tooled: "D",
			tokens: "map[]"},
		{name: "processor's file", files: map[string]string{"chat_template.json": `{"chat_template":"E"}`}, plain: "E", tooled: "E", tokens: "map[]"},
		{name: "broken template", files: map[string]string{"chat_template.jinja": "{% if %}"}, plain: "Expected an expression", tooled: "Expected an expression", tokens: "map[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Load(folder(c.files))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(s.SpecialTokens); got != c.tokens {
				t.Errorf("special tokens %s, want %s", got, c.tokens)
			}
			for tools, want := range map[Value]string{nil: c.plain, NewList(): c.tooled} {
				template, err := s.Template(tools)
				got := fmt.Sprint(err)
				if err == nil {
					got = template.Source()
				}
				if broken := s.Broken(); (broken != nil) != (c.name == "broken template") {
					t.Errorf("broken: %v", broken)
				}
				if !strings.Contains(got, want) {
					t.Errorf("with tools %v: got %s, want %s", tools, got, want)
				}
			}
		})
	}
}

func folder(files map[string]string) fs.FS {
	f := fstest.MapFS{}
	for name, text := range files {
		f[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return f
}

// denied is a folder whose files may not be read.
type denied struct{}

func (denied) Open(string) (fs.File, error) { return nil, fs.ErrPermission }

func TestLoadRefusesBrokenFiles(t *testing.T) {
	for file, want := range map[string]string{
		`{"chat_template":5}`:              "chat: tokenizer_config.json: chat_template must be a string or a list",
		`{"chat_template":["a"]}`:          "chat: tokenizer_config.json: chat_template[0] must be an object",
		`{"chat_template":[{"name":"a"}]}`: "chat: tokenizer_config.json: chat_template[0] must have a name and a template",
		`[]`:                               "chat: tokenizer_config.json: not an object",
		`{"a":`:                            "chat: tokenizer_config.json: jinja: JSON at byte 5: unexpected end",
	} {
		_, err := Load(folder(map[string]string{"tokenizer_config.json": file}))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
	if _, err := Load(denied{}); err == nil {
		t.Error("a file that cannot be read is no error")
	}
}

// TestGoldenConfigs loads every reference configuration.
func TestGoldenConfigs(t *testing.T) {
	for _, path := range golden.Glob(t, "text/tokenizers/*/tokenizer_config.json") {
		s, err := Load(os.DirFS(filepath.Dir(path)))
		if err != nil || len(s.SpecialTokens) == 0 {
			t.Errorf("%s: %+v, %v", path, s, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(`{"bos_token":{"content":"a"},"chat_template":[{"name":"x"}],"model_max_length":1e30}`)
	f.Add(`{"extra_special_tokens":{"x_token":"y"},"chat_template":{"default":"z"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Load(folder(map[string]string{"tokenizer_config.json": text}))
		if err != nil && !strings.Contains(err.Error(), "tokenizer_config.json") {
			t.Errorf("an error without a place: %v", err)
		}
	})
}

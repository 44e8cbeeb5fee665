package tokenizer

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/golden"
)

func ptr[T any](v T) *T { return &v }

func TestLoadConfig(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	cases := []struct {
		name  string
		files fstest.MapFS
		want  Config
	}{
		{name: "no files", files: fstest.MapFS{}},
		{
			name: "strings and objects",
			files: fstest.MapFS{configFile: file(`{"tokenizer_class":"T","bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},
				"unk_token":null,"pad_token":7,"add_bos_token":true,"add_eos_token":false,"model_max_length":4096,
				"chat_template":"hello","image_token":"<img>","additional_special_tokens":["<a>",{"content":"<b>"},3]}`)},
			want: Config{Class: "T", Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>", "image_token": "<img>"},
				Additional: []string{"<a>", "<b>"}, AddBOS: ptr(true), AddEOS: ptr(false), MaxLength: 4096,
				ChatTemplate: "hello", ChatTemplates: map[string]string{"default": "hello"}},
		},
		{
			name:  "a limit beyond int64 means none",
			files: fstest.MapFS{configFile: file(`{"model_max_length":1000000000000000019884624838656,"add_bos_token":"yes"}`)},
		},
		{
			name: "named templates",
			files: fstest.MapFS{configFile: file(`{"chat_template":[{"name":"default","template":"d"},{"name":"rag","template":"r"}]}`),
				"additional_chat_templates/rag.jinja": file("file"), "additional_chat_templates/notes.txt": file("x")},
			want: Config{ChatTemplate: "d", ChatTemplates: map[string]string{"default": "d", "rag": "file"}},
		},
		{
			name: "the template's own file wins",
			files: fstest.MapFS{configFile: file(`{"chat_template":"json"}`), templateFile: file("file\n"),
				templateJSON: file(`{"chat_template":"older"}`)},
			want: Config{ChatTemplate: "file\n", ChatTemplates: map[string]string{"default": "file\n"}},
		},
		{
			name: "special_tokens_map fills what is missing",
			files: fstest.MapFS{configFile: file(`{"bos_token":"<a>"}`), specialFile: file(`{"bos_token":"<b>","eos_token":"<c>"}`),
				templateJSON: file(`{"chat_template":"older"}`)},
			want: Config{Special: map[string]string{"bos_token": "<a>", "eos_token": "<c>"},
				ChatTemplate: "older", ChatTemplates: map[string]string{"default": "older"}},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.want.Special == nil {
				c.want.Special = map[string]string{}
			}
			if c.want.ChatTemplates == nil {
				c.want.ChatTemplates = map[string]string{}
			}
			got, err := LoadConfigFS(c.files, "m")
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v (%v)\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestLoadConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"bos_token": `: "tokenizer: m/tokenizer_config.json: unexpected end",
		`[1]`:            "tokenizer: m/tokenizer_config.json: a array, not an object",
	} {
		_, err := LoadConfigFS(fstest.MapFS{configFile: {Data: []byte(text)}}, "m")
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestGoldenConfigs loads every reference configuration.
func TestGoldenConfigs(t *testing.T) {
	for _, path := range golden.Glob(t, "text/tokenizers/*/tokenizer_config.json") {
		c, err := LoadConfig(filepath.Dir(path))
		if err != nil || len(c.Special) == 0 {
			t.Errorf("%s: %+v, %v", path, c, err)
		}
	}
}

func FuzzLoadConfig(f *testing.F) {
	f.Add(`{"bos_token":{"content":"a"},"chat_template":[{"name":"x"}],"model_max_length":1e30}`)
	f.Add(`{"extra_special_tokens":{"x_token":"y"},"chat_template":{"default":"z"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = LoadConfigFS(fstest.MapFS{configFile: {Data: []byte(text)}}, "m")
	})
}

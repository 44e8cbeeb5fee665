package generate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/tokenizer"
)

type chatFile struct {
	Now   string     `json:"now"`
	Cases []chatCase `json:"cases"`
}

type chatCase struct {
	Tokenizer    string          `json:"tokenizer"`
	Template     string          `json:"template_file"`
	Conversation string          `json:"conversation"`
	Messages     json.RawMessage `json:"messages"`
	Tools        json.RawMessage `json:"tools"`
	Kwargs       json.RawMessage `json:"kwargs"`
	Prompt       *string         `json:"prompt"`
	IDs          []int32         `json:"ids"`
}

// TestGoldenChatIDs goes from messages to the ids of the prompt.
func TestGoldenChatIDs(t *testing.T) {
	var file chatFile
	golden.JSON(t, golden.Path(t, "text", "templates", "chat_ids.json"), &file)
	now := time.Now()
	if file.Now != "" {
		var err error
		if now, err = time.ParseInLocation("2006-01-02T15:04:05", file.Now, time.Local); err != nil {
			t.Fatal(err)
		}
	}
	models := map[string]*generate.Model{}
	for i, c := range file.Cases {
		t.Run(fmt.Sprintf("%d/%s/%s", i, c.Tokenizer, c.Conversation), func(t *testing.T) {
			key := c.Tokenizer + "\n" + c.Template
			if models[key] == nil {
				models[key] = goldenModel(t, c.Tokenizer, c.Template)
			}
			checkChatCase(t, models[key], c, now)
		})
	}
	golden.Count(t, "text/chat_ids", len(file.Cases))
}

func checkChatCase(t *testing.T, m *generate.Model, c chatCase, now time.Time) {
	messages := decodeValue(t, c.Messages).(*chat.List)
	r := chat.Request{Messages: messages.Items, Tools: decodeValue(t, c.Tools), Now: now}
	if kwargs, ok := decodeValue(t, c.Kwargs).(*chat.Dict); ok {
		if err := r.SetKwargs(kwargs); err != nil {
			t.Fatal(err)
		}
	}
	prompt, err := m.ChatPrompt(r)
	if err != nil {
		t.Fatal(err)
	}
	if c.Prompt != nil && prompt != *c.Prompt {
		t.Fatalf("prompt %q\nwant   %q", prompt, *c.Prompt)
	}
	ids, err := m.Encode(t.Context(), prompt, false)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, c.IDs) {
		t.Errorf("ids  %v\nwant %v", ids, c.IDs)
	}
}

func decodeValue(t *testing.T, raw json.RawMessage) chat.Value {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	v, err := chat.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// goldenModel puts a tokenizer and a template together.
func goldenModel(t *testing.T, name, template string) *generate.Model {
	t.Helper()
	folder := fstest.MapFS{}
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} {
		b, err := golden.Read(golden.Path(t, "text", "tokenizers", name, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		folder[file] = &fstest.MapFile{Data: b}
	}
	words, err := tokenizer.LoadFS(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	source, err := golden.Read(golden.Path(t, "text", "templates", "files", filepath.Base(template)))
	if err != nil {
		t.Fatal(err)
	}
	folder["chat_template.jinja"] = &fstest.MapFile{Data: source}
	templates, err := chat.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return &generate.Model{Name: name, Tokenizer: words, Chat: templates}
}

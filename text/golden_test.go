package text_test

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

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/text"
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
	models := map[string]goldenModel{}
	for i, c := range file.Cases {
		t.Run(fmt.Sprintf("%d/%s/%s", i, c.Tokenizer, c.Conversation), func(t *testing.T) {
			key := c.Tokenizer + "\n" + c.Template
			if models[key].chat == nil {
				models[key] = openGolden(t, c.Tokenizer, c.Template)
			}
			checkChatCase(t, models[key], c, now)
		})
	}
	golden.Count(t, "text/chat_ids", len(file.Cases))
}

func checkChatCase(t *testing.T, m goldenModel, c chatCase, now time.Time) {
	conv := text.Conversation{Now: now, Exact: true}
	decode(t, c.Messages, &conv.Messages)
	decode(t, c.Tools, &conv.Tools)
	var kwargs map[string]json.RawMessage
	decode(t, c.Kwargs, &kwargs)
	for name, v := range kwargs {
		if conv.Arguments == nil {
			conv.Arguments = map[string]any{}
		}
		conv.Arguments[name] = v
	}
	prompt, err := m.chat.Render(conv)
	if err != nil {
		t.Fatal(err)
	}
	if c.Prompt != nil && prompt != *c.Prompt {
		t.Fatalf("prompt %q\nwant   %q", prompt, *c.Prompt)
	}
	ids, err := m.tokenizer.Encode(prompt, text.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, c.IDs) {
		t.Errorf("ids  %v\nwant %v", ids, c.IDs)
	}
}

func decode(t *testing.T, raw json.RawMessage, to any) {
	t.Helper()
	if len(raw) == 0 {
		return
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

type goldenModel struct {
	tokenizer *text.Tokenizer
	chat      *text.Chat
}

// openGolden puts a tokenizer and a template together.
func openGolden(t *testing.T, name, template string) goldenModel {
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
	source, err := golden.Read(golden.Path(t, "text", "templates", "files", filepath.Base(template)))
	if err != nil {
		t.Fatal(err)
	}
	folder["chat_template.jinja"] = &fstest.MapFile{Data: source}
	tokenizer, chat, err := text.OpenFS(name, folder)
	if err != nil {
		t.Fatal(err)
	}
	return goldenModel{tokenizer, chat}
}

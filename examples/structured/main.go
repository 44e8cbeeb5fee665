// Structured makes a model answer with JSON that a Go program can read: the answer always satisfies
// the schema, whatever the model would like to say.
//
//	go run ./examples/structured
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// review is what the model is asked for.
type review struct {
	Verdict string   `json:"verdict"`
	Score   int      `json:"score"`
	Tags    []string `json:"tags"`
}

const schema = `{
	"type": "object",
	"properties": {
		"verdict": {"enum": ["good", "bad", "unsure"]},
		"score": {"type": "integer", "minimum": 1, "maximum": 10},
		"tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3}
	},
	"required": ["verdict", "score", "tags"],
	"additionalProperties": false
}`

// ask returns the model's answer as a review.
func ask(ctx context.Context, m *generate.Model, question string) (r review, err error) {
	answer, err := m.Reply(ctx, text.Conversation{Messages: []text.Message{text.User(question)}},
		generate.TextOptions{Params: &generate.Params{}, MaxTokens: 200, Constraint: &generate.Constraint{Schema: json.RawMessage(schema)}})
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(answer.Content), &r)
}

func write(ctx context.Context, to io.Writer) error {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{KVTokens: 2048})
	if err != nil {
		return err
	}
	defer model.Close()
	m, err := generate.New(model, generate.Options{})
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := ask(ctx, m, "Is Heft good?")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "verdict %s, score %d, tags %q\n", r.Verdict, r.Score, r.Tags)
	return err
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: structured\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// Generate makes text from text in a Go program: it continues a text, streams an answer, and runs
// several conversations at once, which share their passes through the model.
//
//	go run ./examples/generate
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// greedy always chooses the likeliest token. The zero TextOptions sample as the model's
// generation_config.json says.
var greedy = generate.TextOptions{Params: &generate.Params{}, MaxTokens: 40}

// stream writes an answer while it is generated.
func stream(ctx context.Context, to io.Writer, m *generate.Model, question string) error {
	for delta, err := range m.StreamReply(ctx, text.Conversation{Messages: []text.Message{text.User(question)}}, greedy) {
		if err != nil {
			return err
		}
		fmt.Fprint(to, delta.Text)
	}
	_, err := fmt.Fprintln(to)
	return err
}

// together asks all questions at once.
func together(ctx context.Context, m *generate.Model, questions []string) ([]string, error) {
	answers, failed := make([]string, len(questions)), make([]error, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() {
			var reply text.Message
			reply, failed[i] = m.Reply(ctx, text.Conversation{Messages: []text.Message{text.User(q)}}, greedy)
			answers[i] = reply.Content
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
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

	stop := greedy
	stop.Stop = []string{"."}
	ending, err := m.Complete(ctx, "<|user|>What is Heft?<|end|><|assistant|>Heft serves", stop)
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "Heft serves%s\n", ending)
	if err := stream(ctx, to, m, "Hello!"); err != nil {
		return err
	}
	questions := []string{"Who are you?", "What is 2 + 3?", "Tell me a joke."}
	answers, err := together(ctx, m, questions)
	if err != nil {
		return err
	}
	for i, q := range questions {
		fmt.Fprintf(to, "%s %s\n", q, answers[i])
	}
	return nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: generate\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

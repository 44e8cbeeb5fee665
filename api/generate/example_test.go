package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// open opens the embedded demo model. A model in a folder is opened by its path.
func open() (*generate.Model, func(), error) {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: 256})
	if err != nil {
		return nil, nil, err
	}
	m, err := generate.New(model, generate.Options{})
	return m, func() { m.Close(); model.Close() }, err
}

var greedy = generate.TextOptions{Params: &generate.Params{}, MaxTokens: 48}

func ExampleModel_Reply() {
	m, done, err := open()
	if err != nil {
		log.Fatal(err)
	}
	defer done()
	answer, err := m.Reply(context.Background(), text.Conversation{Messages: []text.Message{text.User("Hello!")}}, greedy)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Content)
	// Output:
	// Hello! I am Heft's demo model: small, quick and a bit proud. Ask me what Heft is, or for a joke.
}

func ExampleModel_Stream() {
	m, done, err := open()
	if err != nil {
		log.Fatal(err)
	}
	defer done()
	o := greedy
	o.Stop = []string{" that"}
	for piece, err := range m.Stream(context.Background(), "<|user|>What is Heft?<|end|><|assistant|>", o) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece)
	}
	fmt.Println()
	// Output:
	// Heft serves language models
}

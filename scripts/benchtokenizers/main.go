// Command benchtokenizers times our tokenizer: benchtokenizers TOKENIZER.JSON CORPUS encodes
// the texts of CORPUS, which NUL bytes part, and prints the megabytes encoded in a second.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/heftai/heft/internal/tokenizer"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("benchtokenizers: want TOKENIZER.JSON CORPUS")
	}
	rate, err := measure(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal("benchtokenizers: ", err)
	}
	fmt.Println(rate)
}

func measure(vocabulary, corpus string) (float64, error) {
	b, err := os.ReadFile(vocabulary)
	if err != nil {
		return 0, err
	}
	t, err := tokenizer.Parse(b)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(corpus)
	if err != nil {
		return 0, err
	}
	texts := bytes.Split(text, []byte{0})
	start := time.Now()
	for _, one := range texts {
		if _, err := t.EncodeIDs(string(one), tokenizer.EncodeOptions{}); err != nil {
			return 0, err
		}
	}
	return float64(len(text)) / 1e6 / time.Since(start).Seconds(), nil
}

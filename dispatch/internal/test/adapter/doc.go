// Package adapter holds tests only: models with low-rank adapters answer as PEFT does, under every map and beside other
// rows, and adapters that come and go take no more memory than they may.
package adapter

// Package hubcache names models of a hub and finds them in the cache that the Hugging Face libraries
// and serve pull fill. A [Repo] is the name of a model; [Find] turns ORG/NAME into the folder of a
// snapshot. The package fetches nothing: see package hub.
//
// It reads the environment variables that name the cache, as the Hugging Face libraries do, because
// public packages open models by name without a command in between.
package hubcache

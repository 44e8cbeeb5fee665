// Package plan holds tests only: what plans of package dispatch place where, what they predict and what helps.
package plan

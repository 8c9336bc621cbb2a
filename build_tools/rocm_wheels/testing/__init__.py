"""Tests of installed wheels on GPUs: run each where it can harm no other, and write down what came of it."""

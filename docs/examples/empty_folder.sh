#!/bin/sh
# Deletes the files of a folder, after asking. Messages go to file descriptor 3; standard output is
# the result. What is known from earlier runs is on the first line, and in the environment.
folder=$1
say() { printf '%s\n' "$1" >&3; }

read -r start
case $MCP_TASKS_ANSWERS in
*'"empty":true'*) ;;
*'"action"'*)
    echo "left alone"
    exit 0 ;;
*)
    count=$(ls "$folder" | wc -l)
    schema='{"type":"object","properties":{"empty":{"type":"boolean"}},"required":["empty"]}'
    say '{"type":"ask","key":"sure","message":"Delete '"$count"' files?","schema":'"$schema"'}'
    exit 0 ;;
esac
say '{"type":"step","key":"delete"}'
read -r reply
case $reply in
*'"go"'*)
    rm -f -- "$folder"/*
    say '{"type":"end","key":"delete"}' ;;
*'"done"'*) ;; # by an earlier run
*) exit 1 ;;
esac
echo "emptied"

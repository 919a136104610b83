#!/bin/sh
# Spark needs Java 17 or newer: say how to get it on this system; on Debian as root, get it.
enough() {
  command -v java >/dev/null 2>&1 || return 1
  major=$(java -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1)
  [ -n "$major" ] && [ "$major" -ge 17 ]
}

enough && exit 0
if [ -f /etc/debian_version ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Java 17 is missing; installing openjdk-17-jre-headless …" >&2
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null
  enough && exit 0
fi
if command -v java >/dev/null 2>&1; then
  echo "Java is too old for Spark: $(java -version 2>&1 | head -n 1). Version 17 or newer is needed." >&2
else
  echo "Java was not found. Spark needs version 17 or newer." >&2
fi
case "$(uname -s)" in
  Darwin) echo "  brew install openjdk@17" >&2 ;;
  *)
    if [ -f /etc/debian_version ]; then echo "  sudo apt-get install openjdk-17-jre-headless" >&2
    elif [ -f /etc/redhat-release ]; then echo "  sudo dnf install java-17-openjdk-headless" >&2
    elif [ -f /etc/alpine-release ]; then echo "  apk add openjdk17-jre-headless" >&2
    else echo "  Install a Java 17 runtime with this system's package manager." >&2; fi ;;
esac
exit 1

# The image of `make report`: Python, JDK 17, make, and the libraries of pylock.toml.
#   docker build -t isrlab . && docker run -v "$PWD/reports:/isrlab/reports" isrlab
FROM python:3.12-slim-bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends git make openjdk-17-jdk-headless \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /isrlab
COPY . .
RUN make install LOCKED=1
CMD ["make", "report", "LOCKED=1"]
